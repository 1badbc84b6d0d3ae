"""A conversation, as data: its task, its speakers, its opening and its end.

Sessions store their spec, so each change of its shape comes with a version and a step.
"""

from collections.abc import Callable, Mapping, Sequence
from textwrap import shorten
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, Unpack, overload

from pydantic import model_validator
from pydantic.fields import FieldInfo

from ..common.data import Spec
from ..common.display import Panel, Shown
from ..common.errors import SpecError
from ..common.validation import check_depth, describe_unknown_field, validate
from ..common.versions import Migration, Versions, upgrade
from ..ends.end import alternatives, count_of
from ..ends.end_chat import EndChat
from ..speakers.replies import HumanInputMode, HumanReply
from ..speakers.speaker import Speaker
from .consistency import check
from .conversation_options import AnySpeaker, Changes, ConversationOptions
from .defaults import build_model, mark_by_options, mark_default, set_fields, without_marks
from .fields import ConversationFields
from .merge import (
    duplicate_field_error,
    merge_changes,
    merge_speaker,
    merge_speakers,
    read_bare_words,
)


def how_it_ends(conversation: ConversationFields) -> list[str]:
    """Say what ends a conversation, each in a few words."""
    end_chat = conversation.end_chat
    cap = end_chat.max_iterations
    found = [] if cap is None else [f"after {count_of(cap, 'round')}"]
    found += [end.describe_end() for end in alternatives(end_chat.when)]
    if end_chat.waits_for_tasks:
        asked = ", ".join(conversation.stoppers)
        who = "the judge is" if conversation.has_separate_judge else "it is"
        found.append(f"by completed tasks ({end_chat.mode.value}; {who} asked after {asked})")
    for speaker in conversation.speakers:
        if speaker.human is not None:
            found += _by_people(speaker.human)
    return found


def _by_people(human: HumanReply) -> list[str]:
    mode, most = human.human_input_mode, human.max_consecutive_auto_reply
    word = f"at a message that ends with {human.termination}"
    if mode is HumanInputMode.ALWAYS:
        return ["when the person leaves"]
    if mode is HumanInputMode.TERMINATE:
        return [f"{word}, unless the person goes on", "when the person leaves"]
    return [word, f"after {most:,} automatic replies in a row"]


class Conversation(Shown, ConversationFields):
    """One dialogue: what it is about, who speaks, how it opens and how it ends.

    Raises:
        SpecError: A field is missing, unknown or wrong, two speakers share a name,
            a name does not belong to a speaker, a mode needs a stopper and has none, an end can
            never hold, or a model has no price.
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
    def _hangs_together(self) -> Self:
        check(self)
        return self

    def replace(self, **changes: Unpack[Changes]) -> "Conversation":
        """Return the same conversation with other fields.

        Args:
            **changes: The fields that are other. A dict changes only what it names, as in
                ``end_chat={"max_iterations": 9}`` or ``speakers={"Ann": {"system_prompt": "…"}}``;
                anything else takes the place of what was there.

        Returns:
            The new conversation; this one stays as it is.

        Raises:
            SpecError: A change is not valid; names the field.

        Example:
            >>> from duologue import role_play
            >>> garden = role_play("Plan a garden", "Owner", "Gardener")
            >>> garden.replace(end_chat={"max_iterations": 9}, seed=7).end_chat.max_iterations
            9
        """
        check_depth(changes)
        others = read_bare_words(changes)
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
            head=("Speaker", "Replies", "Told", *(["Tools"] if has_tools else [])),
            rows=tuple(rows),
        )


class Form(Spec):
    """The options of a short form as data, as files and Studio have them.

    Each short form has a class derived from its function: the function's parameters are its
    fields, and the function itself its method `fill_in`. In Python and in files the other fields of
    a conversation, and those of each speaker, may stand beside them: `of` takes them all.
    """

    # The function, which takes the values of its parameters and returns what it fills in.
    fill_in: ClassVar[Callable[..., dict[str, Any]]]
    # Its parameters that are fields of the form.
    parameters: ClassVar[tuple[str, ...]]
    # Its parameters that take a speaker, in the order of the speakers, each with the field that
    # has the speaker's name. None of them if the speakers are given as they are.
    roles: ClassVar[Mapping[str, str]] = {}
    # The field that a message of the user sets if a run begins with a message alone.
    message_field: ClassVar[str | None] = None
    # Values of other required fields in that case.
    beside_message: ClassVar[Mapping[str, str]] = {}
    # Fields of a file to begin from, and those that stand there as comments.
    example: ClassVar[Mapping[str, Any]]
    example_options: ClassVar[Mapping[str, Any]]

    # Hidden, since only the derived classes have the fields.
    if TYPE_CHECKING:

        def __init__(self, **fields: Any) -> None: ...

    @classmethod
    def kind(cls) -> str:
        """Return the name of the kind, such as ``role_play`` for ``RolePlayForm``."""
        return cls.fill_in.__name__

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Conversation:
        """Make a conversation of this form's fields and all others that it has.

        Raises:
            SpecError: A field is missing, unknown, wrong or given twice; names it.
        """
        check_depth(given)
        taken = cls.taken()
        unknown = next((name for name in given if name not in taken), None)
        if unknown is not None:
            raise SpecError(describe_unknown_field(unknown, unknown, [taken]))
        flat = {name: given[name] for name in cls.parameters if name in given}
        by_role = {role: _speaker_in(role, given[role]) for role in cls.roles if role in given}
        for role, fields in by_role.items():
            flat.pop(role, None)
            if "name" in fields:
                _put_name(flat, cls.roles[role], role, fields.pop("name"))
        others = {name: given[name] for name in given if name not in {*flat, *cls.roles}}
        return validate(cls, flat)._laid_over(by_role, others)

    @classmethod
    def taken(cls) -> dict[str, FieldInfo]:
        """Return all fields that `of` takes."""
        conversation = {
            name: field
            for name, field in Conversation.model_fields.items()
            if name not in ("version", "speakers")
        }
        of_speakers = dict.fromkeys(cls.roles, FieldInfo(annotation=Speaker))
        return conversation | cls.model_fields | of_speakers

    def conversation(self) -> Conversation:
        """Make the conversation of this form's fields.

        Raises:
            SpecError: The fields do not fit one another; names one.
        """
        others = self.model_fields_set - {*self.parameters}
        return self._laid_over({}, {name: one for name, one in self if name in others})

    def _laid_over(
        self, by_role: Mapping[str, Mapping[str, Any]], others: Mapping[str, Any]
    ) -> Conversation:
        """Make the conversation, with fields that are no parameters laid over it."""
        values = {name: getattr(self, name) for name in self.parameters}
        data: dict[str, Any] = {
            name: mark_default(value, name)
            for name, value in values.items()
            if (field := Conversation.model_fields.get(name)) is not None
            # A field that nobody set stays so, unless the form has a default of its own.
            and (
                name in self.model_fields_set
                or value != field.get_default(call_default_factory=True)
            )
        }
        data = mark_by_options(self.model_fields_set, data | type(self).fill_in(**values))
        changes = read_bare_words(set_fields(others))
        _add_ends(data.get("end_chat"), changes)
        data = merge_changes(data, changes)
        if by_role:
            places = zip(self.roles, data["speakers"], strict=True)
            data["speakers"] = tuple(
                merge_speaker(speaker, by_role[role], (role,)) if role in by_role else speaker
                for role, speaker in places
            )
        return build_model(Conversation, data)


def _speaker_in(role: str, given: object) -> dict[str, Any]:
    """Read what a speaker is given by its role: a name, or its fields. None: nothing."""
    if given is None:
        return {}
    if isinstance(given, str):
        return {"name": given}
    if isinstance(given, Mapping | Speaker):
        return dict(set_fields(given))
    raise SpecError(f"{role}: must be a name or a dict of a speaker's fields, not {given!r}")


def _put_name(flat: dict[str, Any], field: str, role: str, name: object) -> None:
    """Put a speaker's name where the form has it."""
    if flat.setdefault(field, name) != name:
        raise duplicate_field_error(field, f"{role}.name")


def _add_ends(filled: object, changes: dict[str, Any]) -> None:
    """Add what else ends it to the form's own ends, of which models are told."""
    given = changes.get("end_chat")
    if isinstance(filled, dict) and filled.get("when") is not None and isinstance(given, Mapping):
        changes["end_chat"] = {name: one for name, one in given.items() if name != "when"}
        found = validate(EndChat, {"when": given.get("when")}, "end_chat.").when
        if found is not None:
            filled["when"] = without_marks(filled["when"]) | found


SPEC_VERSIONS: Final = Versions[Migration](oldest=12)
"""The versions of a spec; the newest is `SPEC_VERSION`."""


def migrate_spec(data: dict[str, Any], where: str = "") -> dict[str, Any]:
    """Bring a spec to the version of this release."""
    return upgrade(data, SPEC_VERSIONS, where)


def restore_conversation(data: dict[str, Any], where: str = "") -> Conversation:
    """Make a conversation out of a stored spec, of this or an older version."""
    check_depth(data, where)
    return validate(Conversation, migrate_spec(data, where), where)
