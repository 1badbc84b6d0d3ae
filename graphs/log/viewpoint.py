"""The log as one speaker sees it: a pure function of the log, whose result is never stored.

The speaker's own messages have the role of the assistant, and the others' that of the user.
Adjacent messages in one role are joined, and messages that the speaker does not hear are left out
(Lagent's aggregator, tau2-bench's flipped roles). The view follows the rules of providers: a system
message only at the beginning, alternating roles, no call without its result, and only names that
providers accept.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy, deepcopy
from typing import Final, NamedTuple

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.tool import ToolCall

from ..common.content import (
    Block,
    Content,
    describe_content,
    describe_file,
    files_of,
    join_content,
    make_content,
    replace_text,
)
from ..common.display import Messages
from ..conversation.conversation import Conversation
from ..prompts.prompts import RESULT_FILES
from ..speakers.reply_parts import THOUGHT, Thought, calls_of
from ..text.done_words import defuse
from .heard_text import (
    as_heard_alone,
    heard_text,
    list_own_tokens,
    provider_names,
    put_back,
    show_handoffs,
)
from .marks import begins
from .memory import is_in_view, is_told, list_heard, memory, private_lines, recall
from .messages import continues_log, metadata, place_of
from .metadata import (
    HookVersion,
    Instruction,
    JudgeQuestion,
    MessageMetadata,
    SpeakerReply,
    Speech,
    ToolCalls,
)

SILENCE = "(empty message)"
"""The text of a blank message. Many providers refuse a blank one."""


def viewpoint(
    conversation: Conversation, log: Sequence[BaseMessage], name: str, *, system: str | None = None
) -> list[BaseMessage]:
    """Return the log as one speaker sees it.

    Args:
        conversation: The spec that the log belongs to.
        log: The messages of the log, oldest first.
        name: The speaker's name.
        system: The system prompt for the beginning. None for no system message.

    Returns:
        LangChain messages: at most one system message at the beginning, then the speaker's
        examples, then user and assistant messages in turn, each tool call followed by its result.
        The other speakers' messages begin with their names if the spec requires it, or if it
        leaves this open and more than two speakers take part or the opening answers were
        reconciled. The speaker's prefix for a message comes before the name.

    Raises:
        KeyError: No speaker has this name.
    """
    return Messages(View(conversation, name).show(recall(log, name), system))


def memory_messages(
    conversation: Conversation, log: Sequence[BaseMessage], name: str
) -> list[AnyMessage]:
    """Return the messages that a speaker remembers, in the form of `Speaker.memory`.

    Messages of other speakers have the field `name` instead of a label. Each call is followed by
    its result; calls without a result are left out.
    """
    known = memory(log, name)
    results = [message for message in known if isinstance(message, ToolMessage)]
    view = View(conversation, name, is_labelled=False, has_thoughts=True)
    found: list[AnyMessage] = []
    for message in known:
        if isinstance(message, ToolMessage):
            continue
        ids = {call["id"] for call in calls_of(message)} if isinstance(message, AIMessage) else ()
        found += view.lone(message, [one for one in results if one.tool_call_id in ids])
    for one in found:
        # A thought that its provider does not need again is not remembered.
        if THOUGHT in one.additional_kwargs and one.additional_kwargs[THOUGHT].given is None:
            one.additional_kwargs = {}
    return found


def order_messages(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """Return a prompt's messages in an order that every provider accepts.

    The first message after the system message is the user's. A message of the assistant follows one
    of the user, or results of tools. A message of the user follows one of the assistant without
    calls. So user and assistant alternate, also if calls and their results are not counted. If a
    message is missing in this order, a blank one takes its place; user messages are joined.

    Mistral's API accepts only the assistant after results: mistral-common,
    src/mistral_common/protocol/instruct/validator.py, ``_validate_message_order``. Its chat
    template counts the turns without calls and results: vllm-project/vllm,
    examples/tool_chat_template_mistral_parallel.jinja. The other providers accept this order, too.
    """
    found: list[BaseMessage] = []
    for message in messages:
        last = found[-1] if found else None
        if isinstance(message, HumanMessage):
            if isinstance(last, HumanMessage):
                found[-1] = HumanMessage(join_content(last.content, message.content))
                continue
            if isinstance(last, ToolMessage):
                found.append(AIMessage(SILENCE))
        elif isinstance(message, AIMessage) and not isinstance(last, HumanMessage | ToolMessage):
            found.append(HumanMessage(SILENCE))
        found.append(message)
    return found


class View:
    """One speaker's view of the messages that it remembers. The view grows with the log.

    The part before the speaker's newest message is settled. The part after it is computed again
    each time, since a hook may still change it, and calls may still get their results.
    """

    def __init__(
        self,
        conversation: Conversation,
        name: str,
        *,
        in_prompt: bool = False,
        is_labelled: bool = True,
        has_thoughts: bool = False,
    ) -> None:
        self._has_thoughts = has_thoughts
        self._conversation = conversation
        self._speaker = conversation.speaker(name)
        self._names = provider_names(conversation.names)
        self._is_labelled = is_labelled and conversation.hears_labels(self._speaker)
        self._prefixes = self._speaker.prefixes if is_labelled else {}
        self._in_prompt = in_prompt and not self._is_labelled
        self._own_tokens = list_own_tokens(conversation, name)
        examples = private_lines(conversation, name, self._speaker.examples)
        # Examples are not in the log, so their ids would refer to nothing.
        self._examples = [one.model_copy(update={"id": None}) for one in self._show(examples)]
        self._begin()

    def _begin(self) -> None:
        self._read: list[BaseMessage] = []
        self._known: set[str] = set()
        self._shown = _Shown([], {}, set())

    def show(self, log: Sequence[BaseMessage], system: str | None = None) -> list[BaseMessage]:
        """Return the remembered messages of a log in this view.

        Do not change the returned messages.
        """
        if not continues_log(self._read, log) or self._changes(log[len(self._read) :], self._known):
            self._begin()
        rest = log[len(self._read) :]
        settled_to = self._find_settled(rest)
        before, behind = rest[:settled_to], rest[settled_to:]
        # Later messages replace earlier ones by their places, and by the ids of calls.
        known = {*map(place_of, before)}
        known |= {one.tool_call_id for one in before if isinstance(one, ToolMessage)}
        if self._changes(behind, known):
            before, behind, known = (), rest, set()
        self._add(self._shown, before)
        self._read += before
        self._known |= known
        settled = self._shown
        now = _Shown([*settled.view], {**settled.results}, {*settled.heard})
        self._add(now, behind)
        view = now.view
        front: list[BaseMessage] = [SystemMessage(system)] if system else []
        return [*front, *self._examples, *view]

    def lone(self, message: BaseMessage, results: Sequence[BaseMessage]) -> list[AnyMessage]:
        """Return the view of a single message and its call results."""
        view, speaker = self._show([message, *results]), metadata(message).speaker
        for one in view:
            if isinstance(one, HumanMessage) and speaker is not None:
                # A speaker remembered from another conversation has a name, too.
                one.name = self._names.get(speaker) or provider_names([speaker])[speaker]
        return view

    def _show(self, log: Sequence[BaseMessage]) -> list[AnyMessage]:
        shown = _Shown([], {}, set())
        self._add(shown, log)
        return shown.view

    def _changes(self, new: Sequence[BaseMessage], known: set[str]) -> bool:
        """Return whether a new message replaces a settled one."""
        results, replaced = _find_replacements(new, self._speaker.name)
        return not known.isdisjoint({*results, *replaced})

    def _find_settled(self, rest: Sequence[BaseMessage]) -> int:
        """Return the number of messages up to the speaker's newest one whose calls have results."""
        name, settled = self._speaker.name, 0
        waiting: set[str | None] = set()
        for number, message in enumerate(rest, start=1):
            about = metadata(message)
            if about.speaker != name or not is_in_view(message, about, name):
                continue
            if isinstance(message, ToolMessage):
                waiting.discard(message.tool_call_id)
            elif isinstance(message, AIMessage):
                calls = (*message.tool_calls, *message.invalid_tool_calls)
                waiting.update(call["id"] for call in calls)
            if not waiting:
                settled = number
        return settled

    def _mark_told(self, shown: "_Shown", text: str, about: MessageMetadata) -> str:
        """Mark the conversation's own text if it could be mistaken for another speaker's words."""
        if is_told(about) and shown.heard:
            return self._conversation.mark_instruction(self._speaker, text)
        if not (is_told(about) or shown.heard or isinstance(about, JudgeQuestion)):
            shown.heard.add(about.speaker)
            if shown.view and isinstance(last := shown.view[-1], HumanMessage):
                # Only now is it known that another speaker's words follow in the same message.
                marked = self._conversation.mark_instruction(self._speaker, last.text)
                content = replace_text(last.content, marked)
                shown.view[-1] = HumanMessage(content, name=last.name, id=last.id)
        return text

    def _text_of(self, message: BaseMessage, about: MessageMetadata) -> str:
        """Return the text that is heard of another's message, without forged labels and tokens."""
        text = heard_text(self._conversation, message, about)
        if about.speaker is None:
            return text
        for token in self._own_tokens:
            # The speaker can't end the conversation by a quotation then.
            text = defuse(token, text)
        return _quote_labels(text, self._conversation.names) if self._is_labelled else text

    def _add(self, shown: "_Shown", log: Sequence[BaseMessage]) -> None:
        name = self._speaker.name
        results, replaced = _find_replacements(log, name)
        for message in log:
            about = metadata(message)
            if (
                # A result is added after its call.
                isinstance(message, ToolMessage)
                or place_of(message) in replaced
                or not is_in_view(message, about, name)
            ):
                continue
            if about.speaker == name:
                self._add_own(shown, message, about, results)
                continue
            if isinstance(about, Speech) and about.is_delivered:
                continue
            text = self._text_of(message, about)
            if self._in_prompt and not (shown.heard and about.speaker):
                text = self._mark_told(shown, text, about)
            to = about.to if isinstance(about, Instruction) else None
            if to not in (None, name):
                text = f"To {to}: {text}"
            elif about.audience is not None:
                text = as_heard_alone(self._conversation, about, name, text.strip() or SILENCE)
            text = text.strip() or SILENCE
            # Models that read labels tend to write their own.
            if self._is_labelled and about.speaker and not text.startswith(f"{about.speaker}:"):
                text = f"{about.speaker}: {text}"
            text = self._prefixes.get(about.speaker or "", "") + text
            is_text = isinstance(message.content, str)
            content: Content = text if is_text else replace_text(message.content, text)
            _add_heard(shown.view, content, message.id, self._names.get(about.speaker or ""))

    def _add_own(
        self,
        shown: "_Shown",
        message: BaseMessage,
        about: MessageMetadata,
        results: Mapping[str, ToolMessage],
    ) -> None:
        """Add a message of the speaker itself, followed by its call results.

        Providers refuse files in messages of the assistant, and OpenAI in results of tools. So the
        speaker's own files are described, and those of results follow in a message of the user. The
        text of a message that hands over is in its call.
        """
        view = shown.view
        reply = about if isinstance(about, SpeakerReply) else None
        handed = show_handoffs(self._conversation, reply, message) if reply else []
        calls = calls_of(message) if isinstance(message, AIMessage) else []
        new = {call["id"] for call in calls if call["id"] in results} - shown.results.keys()
        calls = [call for call in calls if _take_id(new, call["id"])]
        text, calls = put_back(message.text, calls, reply.to_user if reply else {})
        text = text.strip()
        if not isinstance(message.content, str):
            text = describe_content(replace_text(message.content, text))
        if handed:
            text = ""
        elif not (text or calls):
            # Calls that have not run yet are not shown.
            if isinstance(about, ToolCalls):
                return
            text = SILENCE
        if view and isinstance(view[-1], AIMessage):
            text = _join_parts(view.pop().text, text)
        made = [*calls, *[call for call, _ in handed]]
        own = AIMessage(text, name=self._names[self._speaker.name], tool_calls=made, id=message.id)
        thought = getattr(about, "thought", None) if self._has_thoughts else None
        if thought is not None:
            own.additional_kwargs[THOUGHT] = _rename_calls(thought, calls, handed)
        view.append(own)
        files: list[Block] = []
        for call_id in (str(call["id"]) for call in calls):
            shown.results[call_id] = result = results[call_id]
            files += files_of(result.content)
            # A copy without metadata.
            text = describe_content(result.content) or SILENCE
            view.append(ToolMessage(text, tool_call_id=call_id, status=result.status, id=result.id))
        view += [result for _, result in handed]
        if files:
            names = ", ".join(map(describe_file, files))
            text = self._conversation.render_prompt(RESULT_FILES, files=names)
            view.append(HumanMessage(make_content(text, files)))


class _Shown(NamedTuple):
    """A view of a part of the log."""

    view: list[AnyMessage]  # the messages that are sent
    results: dict[str, ToolMessage]  # the results of calls in it, as the log contains them
    heard: set[str | None]  # the speakers that are heard in it


_COPIED: Final = ("content", "additional_kwargs", "response_metadata", "tool_calls")
"""The fields whose values may be changed in place. The calls of the current turn may have the
model's thought in them."""


def copy_view(view: Iterable[BaseMessage]) -> list[BaseMessage]:
    """Return a copy of a view whose messages may be changed. It is much faster than `deepcopy`."""
    copies = [*map(copy, view)]
    for fields in map(vars, copies):
        for name in _COPIED:
            value = fields.get(name)
            if isinstance(value, dict | list):
                # `deepcopy` of an empty value would take as long as the rest.
                fields[name] = deepcopy(value) if value else type(value)()
    return copies


def _find_replacements(
    log: Sequence[BaseMessage], name: str
) -> tuple[dict[str, ToolMessage], set[str]]:
    """Return the newest result of each call of this speaker, by the call's id, and further places.

    These are the places of the messages that the speaker hears in a hook's version.
    """
    results, replaced = dict[str, ToolMessage](), set[str]()
    for message in log:
        about = metadata(message)
        if isinstance(about, HookVersion) and about.is_heard_by(name):
            replaced.update(about.instead_of)
        elif isinstance(message, ToolMessage) and is_in_view(message, about, name):
            results[message.tool_call_id] = message
    return results, replaced


def _rename_calls(
    thought: Thought, calls: Sequence[ToolCall], handed: Sequence[tuple[ToolCall, ToolMessage]]
) -> Thought:
    """Return a thought whose fields for calls belong to the calls of the view.

    The log does not contain the calls of ``hand_off``, so the view shows them with new ids.
    """
    known = {call["id"] for call in calls}
    others = [one for one in (thought.given.calls if thought.given else ()) if one not in known]
    return thought.rename_calls(
        {old: str(call["id"]) for old, (call, _) in zip(others, handed, strict=False)}
    )


def drop_thoughts(view: Iterable[BaseMessage]) -> list[BaseMessage]:
    """Return a view without the thoughts of the speaker's model, for people and functions."""
    return [
        message.model_copy(update={"additional_kwargs": {}})
        if THOUGHT in message.additional_kwargs
        else message
        for message in view
    ]


def _take_id(new: set[str | None], call_id: str | None) -> bool:
    """Remove an id from the new ids, and return whether it was one of them."""
    if call_id not in new:
        return False
    new.remove(call_id)
    return True


def _quote_labels(text: str, names: Sequence[str]) -> str:
    """Mark the lines that begin with a speaker's name as quotations.

    Otherwise they would look like messages of that speaker.
    """
    first, *others = text.strip().splitlines() or [""]
    labels = [f"{name}:" for name in names]
    is_label = [any(begins(line, label) for label in labels) for line in others]
    if not any(is_label):
        return text
    marked = zip(is_label, others, strict=True)
    return "\n".join([first, *(f"> {line}" if found else line for found, line in marked)])


def _add_heard(view: list[AnyMessage], text: Content, id_: str | None, name: str | None) -> None:
    """Add a message of another speaker.

    The content is joined to the message before it if the speaker heard that message, too.
    """
    last = view[-1] if view else None
    if isinstance(last, HumanMessage):
        view.pop()
        is_text = isinstance(text, str) and isinstance(last.content, str)
        text = _join_parts(last.text, str(text)) if is_text else join_content(last.content, text)
        if last.name != name:
            name = None
    view.append(HumanMessage(text, name=name, id=id_))


def _join_parts(before: str, after: str) -> str:
    return "\n\n".join(part for part in (before, after) if part)


def describe_news(conversation: Conversation, log: Sequence[BaseMessage], name: str) -> Content:
    """Return the content that a speaker has heard since its newest message, as in its view."""
    since = {*list_heard(log, name)}
    view = viewpoint(conversation, [message for message in log if place_of(message) in since], name)
    last = view[-1] if view else None
    return last.content if isinstance(last, HumanMessage) else ""
