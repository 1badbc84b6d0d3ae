"""Conversations and short forms as data, and whom their speakers may hand over to.

Sessions store their spec, so each change of the fields needs a new version and a migration.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from textwrap import shorten
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, Unpack, overload

from pydantic import JsonValue, model_validator
from pydantic.fields import FieldInfo

from ..common.data import Migration, Spec, Versions, upgrade
from ..common.display import Panel, Shown
from ..common.errors import SpecError, hide_frames, name_type, naming_path
from ..common.hints import suggest_value
from ..common.validation import check_data, check_depth, describe_unknown_field, validate
from ..ends.end import alternatives, count_of
from ..ends.end_chat import EndChat, read_bare_end
from ..speakers.formats import SchemaFormat
from ..speakers.replies import ConversationReply, HumanInputMode, HumanReply, InnerSpec
from ..speakers.speaker import Speaker
from ..text.names import read_name
from .conversation_options import (
    AnySpeaker,
    Changes,
    ConversationOptions,
    build_model,
    duplicate_field_error,
    mark_by_options,
    mark_default,
    merge_changes,
    merge_speaker,
    merge_speakers,
    read_bare_words,
    remove_marks,
    set_fields,
)
from .fields import ConversationFields
from .judges import Handoff
from .limits import check


def how_it_ends(conversation: ConversationFields) -> list[str]:
    """Describe each end of a conversation in a few words."""
    end_chat = conversation.end_chat
    cap = end_chat.max_iterations
    found = [] if cap is None else [f"after {count_of(cap, 'round')}"]
    found += [end.describe_end() for end in alternatives(end_chat.when)]
    if end_chat.waits_for_tasks:
        asked = ", ".join(conversation.stoppers)
        by = " by the judge" if conversation.has_separate_judge else ""
        found.append(
            f"by completed tasks ({end_chat.mode.value}; checked{by} after each turn of {asked})"
        )
    for speaker in conversation.speakers:
        if speaker.human is not None:
            found += _describe_ends_by_people(speaker.human)
    return found


def _describe_ends_by_people(human: HumanReply) -> list[str]:
    mode, most = human.human_input_mode, human.max_consecutive_auto_reply
    word = f"at a message that ends with {human.termination}"
    if mode is HumanInputMode.ALWAYS:
        return ["when the person leaves"]
    if mode is HumanInputMode.TERMINATE:
        return [f"{word}, unless the person continues", "when the person leaves"]
    return [word, f"after {most:,} automatic replies in a row"]


class Conversation(Shown, ConversationFields):
    """One dialogue: its task, its speakers, its opening and its end.

    Raises:
        SpecError: A field is missing, unknown or wrong; two speakers share a name; a field names a
            speaker that does not exist; the end-chat mode needs a speaker that checks completion;
            an end can never be met; or a model has no price.
    """

    if TYPE_CHECKING:

        @overload
        def __init__(
            self,
            task: str | None,
            speakers: Sequence[AnySpeaker],
            **fields: Unpack[ConversationOptions],
        ) -> None: ...
        @overload
        def __init__(
            self,
            task: str | None = None,
            *,
            speakers: Sequence[AnySpeaker],
            **fields: Unpack[ConversationOptions],
        ) -> None: ...
        def __init__(self, *values: Any, **fields: Any) -> None: ...

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        check(self)
        for path, inner in inner_conversations(self) if self.has_inner else ():
            if _count_levels(inner) >= MOST_LEVELS:
                raise SpecError(
                    f"{path}: conversations are nested too deeply; use at most {MOST_LEVELS} levels"
                )
        return self

    @hide_frames
    def replace(self, **changes: Unpack[Changes]) -> "Conversation":
        """Return a copy of the conversation with other values of some fields.

        Args:
            **changes: The new values. A dict changes only its own fields, as in
                ``end_chat={"max_iterations": 9}`` or ``speakers={"Ann": {"system_prompt": "…"}}``;
                any other value replaces the old value.

        Returns:
            The new conversation. The original does not change.

        Raises:
            SpecError: A change is not valid; the message names the field.

        Example:
            >>> from duologue import role_play
            >>> garden = role_play("Plan a garden", "Owner", "Gardener")
            >>> garden.replace(end_chat={"max_iterations": 9}, seed=7).end_chat.max_iterations
            9
        """
        check_depth(changes)
        _check_nesting(changes)
        others = read_bare_words(changes)
        if "end_chat" in changes:
            others["end_chat"] = read_bare_end(changes["end_chat"])
        if isinstance(others.get("speakers"), Mapping):
            others["speakers"] = merge_speakers(self.speakers, others["speakers"])
        return build_model(Conversation, merge_changes(self, others))

    def _panel(self) -> Panel:
        has_tools = any(one.tools for one in self.speakers)
        rows = [
            (
                one.name,
                ", ".join(reply.kind for reply in one.replies),
                shorten(one.task or one.system_prompt or "", 100, placeholder=" …"),
                *([", ".join(one.tools)] if has_tools else []),
            )
            for one in self.speakers
        ]
        return Panel(
            title=shorten(self.title or self.task or "A conversation", 100, placeholder=" …"),
            notes=(f"Ends {'; '.join(how_it_ends(self))}.",),
            head=("Speaker", "Replies", "Instructions", *(["Tools"] if has_tools else [])),
            rows=tuple(rows),
        )


class Form(Spec):
    """The options of a short form as data, as files and Studio contain them.

    Each short form has a class derived from its function: the function's parameters are the class's
    fields, and the function itself is its method `fill_in`. `of` also accepts the other fields of a
    conversation, and the fields of each speaker.
    """

    # Receives the values of the parameters and returns the fields of the conversation.
    fill_in: ClassVar[Callable[..., dict[str, Any]]]
    # The function's parameters that are fields of the form.
    parameters: ClassVar[tuple[str, ...]]
    # The parameters that accept a speaker, in the order of the speakers, each with the field that
    # contains the speaker's name. Empty if the form accepts a list of speakers.
    roles: ClassVar[Mapping[str, str]] = {}
    # The field that receives the user's message if the input of a run is only a message.
    message_field: ClassVar[str | None] = None
    # The values of the other required fields of a run whose input is only a message.
    beside_message: ClassVar[Mapping[str, str]] = {}

    # Hidden from type checkers, because only the derived classes have fields.
    if TYPE_CHECKING:

        def __init__(self, **fields: Any) -> None: ...

    @classmethod
    def kind(cls) -> str:
        """Return the name of the kind, such as ``role_play`` for ``RolePlayForm``."""
        return cls.fill_in.__name__

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Conversation:
        """Build a conversation from this form's fields and the fields of the conversation itself.

        Raises:
            SpecError: A field is missing, unknown, wrong or set twice; the message names it.
        """
        check_depth(given)
        cls.check_names(given)
        flat = {name: given[name] for name in cls.parameters if name in given}
        by_role = {role: _read_speaker(role, given[role]) for role in cls.roles if role in given}
        for role, fields in by_role.items():
            flat.pop(role, None)
            if "name" in fields:
                field, name = cls.roles[role], fields.pop("name")
                if flat.setdefault(field, name) != name:
                    raise duplicate_field_error(field, f"{role}.name")
        others = {name: given[name] for name in given if name not in {*flat, *cls.roles}}
        return validate(cls, flat)._build_conversation(by_role, others)

    @classmethod
    def check_names(cls, given: Iterable[str]) -> None:
        """Raise `SpecError` for the first name that is not a field of this form."""
        taken = cls.taken()
        unknown = next((name for name in given if name not in taken), None)
        if unknown is not None:
            raise SpecError(describe_unknown_field(unknown, unknown, [taken]))

    @classmethod
    def taken(cls) -> dict[str, FieldInfo]:
        """Return all fields that `of` accepts."""
        conversation = {
            name: field
            for name, field in Conversation.model_fields.items()
            if name not in ("version", "speakers")
        }
        of_speakers = dict.fromkeys(cls.roles, FieldInfo(annotation=Speaker))
        return conversation | cls.model_fields | of_speakers

    def conversation(self) -> Conversation:
        """Build the conversation from this form's fields.

        Raises:
            SpecError: Two fields contradict each other; the message names one of them.
        """
        others = self.model_fields_set - {*self.parameters}
        return self._build_conversation({}, {name: one for name, one in self if name in others})

    def _build_conversation(
        self, by_role: Mapping[str, Mapping[str, Any]], others: Mapping[str, Any]
    ) -> Conversation:
        """Build the conversation and merge the fields that are not parameters into it."""
        values = {name: getattr(self, name) for name in self.parameters}
        data: dict[str, Any] = {
            name: mark_default(value, name)
            for name, value in values.items()
            if (field := Conversation.model_fields.get(name)) is not None
            # An unset field stays unset, unless the form has another default for it.
            and (
                name in self.model_fields_set
                or value != field.get_default(call_default_factory=True)
            )
        }
        data = mark_by_options(self.model_fields_set, data | type(self).fill_in(**values))
        changes = read_bare_words(set_fields(others))
        own, given = data.get("end_chat"), changes.get("end_chat")
        if isinstance(own, dict) and own.get("when") is not None and isinstance(given, Mapping):
            # The caller's end conditions join the form's own, which the system prompts mention.
            changes["end_chat"] = {name: one for name, one in given.items() if name != "when"}
            found = validate(EndChat, {"when": given.get("when")}, "end_chat.").when
            if found is not None:
                own["when"] = remove_marks(own["when"]) | found
        data = merge_changes(data, changes)
        if by_role:
            places = zip(self.roles, data["speakers"], strict=True)
            data["speakers"] = tuple(
                merge_speaker(speaker, by_role[role], (role,)) if role in by_role else speaker
                for role, speaker in places
            )
        return build_model(Conversation, data)


def _read_speaker(role: str, given: object) -> dict[str, Any]:
    """Read a speaker's fields from its role's argument: a name, fields, or None for no fields."""
    if given is None:
        return {}
    if isinstance(given, str):
        return {"name": given}
    if isinstance(given, Mapping | Speaker):
        return dict(set_fields(given))
    remedy = suggest_value(role, given) or "; write its name, or its fields"
    shown = repr(given) if isinstance(given, int | float) else name_type(given)
    raise SpecError(f"{role}: must be a name or a dict of a speaker's fields, not {shown}{remedy}")


def _check_nesting(changes: Mapping[str, object]) -> None:
    """Raise if a field of a part of the conversation is passed as its own field."""
    for name in changes.keys() - Conversation.model_fields.keys():
        if name in EndChat.model_fields:
            raise SpecError(f'{name}: there is no such field; write end_chat={{"{name}": …}}')
        if name in Speaker.model_fields:
            own = f'{{"NAME": {{"{name}": …}}}}'
            raise SpecError(f"{name}: there is no such field; write speakers={own}")


SPEC_VERSIONS: Final = Versions[Migration](oldest=16)
"""The versions of a spec; the newest is `SPEC_VERSION`."""


def migrate_spec(data: dict[str, Any], where: str = "") -> dict[str, Any]:
    """Upgrade a stored spec to the version of this release."""
    return upgrade(data, SPEC_VERSIONS, where)


def restore_conversation(data: dict[str, Any], where: str = "") -> Conversation:
    """Build a conversation from a stored spec of this version or an older one."""
    check_depth(data, where)
    return validate(Conversation, migrate_spec(data, where), where)


def write_conversation(conversation: Conversation) -> str:
    """Return the spec of a conversation as the JSON text that the row of its session contains.

    Raises:
        SpecError: A text contains a character that can't be stored; the message names the field.
    """
    stored = conversation.stored()
    check_data(stored)
    return json.dumps(stored, ensure_ascii=False)


MOST_LEVELS: Final = 5
"""Maximum depth of conversations within conversations, the outermost included."""


def inner_conversation(reply: ConversationReply) -> Conversation:
    """Return the inner conversation of a reply, with the objects that it carries.

    Raises:
        SpecError: Its fields are not valid.
    """
    spec = reply.conversation
    if not isinstance(spec, InnerSpec):
        return restore_conversation({**spec})
    if not isinstance(spec.brought, Conversation):
        spec.brought = restore_conversation({**spec})
    return spec.brought


def inner_conversations(conversation: Conversation) -> Iterator[tuple[str, Conversation]]:
    """Yield the inner conversations of the speakers' replies, each with its path."""
    for number, speaker in enumerate(conversation.speakers):
        for place, reply in enumerate(speaker.replies):
            if isinstance(reply, ConversationReply):
                path = f"speakers.{number}.replies.{place}.conversation"
                with naming_path(path):
                    inner = inner_conversation(reply)
                yield path, inner


def _count_levels(conversation: Conversation) -> int:
    inner = [_count_levels(one) for _, one in inner_conversations(conversation)]
    return 1 + max(inner, default=0)


def hand_off_targets(conversation: Conversation, name: str) -> tuple[str, ...]:
    """Return the names a speaker may hand over to; empty unless the turn order is `Handoff`."""
    order = conversation.turn_order
    if not isinstance(order, Handoff):
        return ()
    others = tuple(other for other in conversation.names if other != name)
    return order.to.get(name, others)


def has_hand_off_tool(conversation: Conversation, speaker: Speaker) -> bool:
    """Return whether a speaker's model is offered the tool that names the next speaker."""
    may = hand_off_targets(conversation, speaker.name)
    # With a single target there is nothing to choose.
    has_choice = len(may) > 1 or (bool(may) and may_hand_off_privately(conversation))
    return has_choice and speaker.has_model and not isinstance(speaker.format, SchemaFormat)


def may_hand_off_privately(conversation: Conversation) -> bool:
    """Return whether a speaker may restrict its message to the next speaker."""
    order = conversation.turn_order
    return isinstance(order, Handoff) and order.private


def read_target(conversation: Conversation, name: str, text: str) -> str | None:
    """Return the speaker that a text names, if this speaker may hand over to it, or None."""
    return read_name(text, hand_off_targets(conversation, name), conversation.names)


def find_first_allowed(conversation: Conversation, name: str, given: Sequence[str]) -> str | None:
    """Return the first of the named speakers that this speaker may hand over to, or None."""
    return next(filter(None, (read_target(conversation, name, one) for one in given)), None)


def read_next_speaker(conversation: Conversation, parsed: JsonValue) -> tuple[str, ...]:
    """Return the next speaker as named in a speaker's JSON, unchecked. Empty if it names none."""
    order = conversation.turn_order
    if not isinstance(order, Handoff) or not isinstance(parsed, dict):
        return ()
    found = parsed.get(order.field)
    return () if found is None or found == "" else (str(found),)
