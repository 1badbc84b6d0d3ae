"""The log as one speaker sees it: a pure projection, computed for each turn and never stored.

The speaker's own messages are the assistant's, the others' are the user's. Neighbours in one role
are joined, and inaudible messages are left out (Lagent's aggregator, tau2-bench's flipped roles).
The rules of providers are kept here: a system message only at the beginning, no two turns in one
role, no call without its result, and only names that providers accept.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import NamedTuple

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.tool import ToolCall

from ..common.display import Messages
from ..conversation.conversation import Conversation
from ..speakers.private_messages import calls_of
from .heard_text import as_heard_alone, handing_over, heard_text, provider_names, put_back
from .memory import is_in_view, is_told, memory, private_lines, remembered
from .messages import continues_log, metadata, place_of, says_something
from .metadata import (
    HookVersion,
    Instruction,
    JudgeQuestion,
    MessageMetadata,
    SpeakerReply,
    ToolCalls,
)

SILENCE = "(empty message)"
"""The text for a blank message, which many providers refuse."""


def viewpoint(
    conversation: Conversation, log: Sequence[BaseMessage], name: str, *, system: str | None = None
) -> list[BaseMessage]:
    """Show the log as one speaker sees it.

    Args:
        conversation: The spec the log belongs to.
        log: Messages of the log, oldest first.
        name: The speaker's name.
        system: The system prompt to put in front.

    Returns:
        LangChain messages: at most one system message, in front, then user and assistant messages
        in turn, the speaker's examples first, each call of tools followed by its results. Others'
        lines are labelled with their names where the spec says so, or does not say and more than
        two take part, or the opening answers were reconciled; the speaker's prefix for them stands
        in front.

    Raises:
        KeyError: Nobody has that name.
    """
    return Messages(View(conversation, name).of(remembered(log, name), system))


def memory_messages(
    conversation: Conversation, log: Sequence[BaseMessage], name: str
) -> list[AnyMessage]:
    """Return what a speaker remembers, one message for each line, as `Speaker.memory` accepts it.

    Others' messages carry their speakers' names, not labels. Each call is followed by its result;
    calls without a result are left out.
    """
    known = memory(log, name)
    results = [message for message in known if isinstance(message, ToolMessage)]
    view = View(conversation, name, is_labelled=False)
    found: list[AnyMessage] = []
    for message in known:
        if isinstance(message, ToolMessage):
            continue
        ids = {call["id"] for call in calls_of(message)} if isinstance(message, AIMessage) else ()
        found += view.lone(message, [one for one in results if one.tool_call_id in ids])
    return found


class View:
    """What one speaker remembers, as it sees it; for a longer log it is extended.

    What comes before the speaker's newest line stays as it is. What follows is made anew each
    time, since a hook may still change it, and calls may still get their results.
    """

    def __init__(
        self,
        conversation: Conversation,
        name: str,
        *,
        in_prompt: bool = False,
        is_labelled: bool = True,
    ) -> None:
        self._conversation = conversation
        self._speaker = conversation.speaker(name)
        self._names = provider_names(conversation.names)
        self._is_labelled = is_labelled and conversation.hears_labels(self._speaker)
        self._prefixes = self._speaker.prefixes if is_labelled else {}
        self._in_prompt = in_prompt and not self._is_labelled
        examples = private_lines(conversation, name, self._speaker.examples)
        # They are no lines of the log, by whose ids anything could be found.
        self._examples = [one.model_copy(update={"id": None}) for one in self._show(examples)]
        self._begin()

    def _begin(self) -> None:
        self._read: list[BaseMessage] = []
        self._known: set[str] = set()
        self._shown = _Shown([], {}, set())

    def of(self, log: Sequence[BaseMessage], system: str | None = None) -> list[BaseMessage]:
        """Show what the speaker remembers of a log; the messages are not to be changed."""
        if not continues_log(self._read, log) or self._changes(log[len(self._read) :], self._known):
            self._begin()
        before, behind = self._apart(log[len(self._read) :])
        self._add(self._shown, before)
        self._read += before
        self._known |= _known(before)
        settled = self._shown
        now = _Shown([*settled.view], {**settled.results}, {*settled.heard})
        self._add(now, behind)
        view = now.view
        front: list[BaseMessage] = [SystemMessage(system)] if system else []
        if self._examples:
            front += self._examples
            if view and isinstance(view[0], AIMessage):
                # An example is no line of the speaker's own, and two turns in one role are refused.
                front.append(HumanMessage(SILENCE))
        return front + view

    def lone(self, message: BaseMessage, results: Sequence[BaseMessage]) -> list[AnyMessage]:
        """Show one line by itself, with the results of its calls."""
        view, speaker = self._show([message, *results]), metadata(message).speaker
        for one in view:
            if isinstance(one, HumanMessage) and speaker is not None:
                # A stranger, whom it remembers of another conversation, has a name, too.
                one.name = self._names.get(speaker) or provider_names([speaker])[speaker]
        return view

    def _show(self, log: Sequence[BaseMessage]) -> list[AnyMessage]:
        shown = _Shown([], {}, set())
        self._add(shown, log)
        return shown.view

    def _changes(self, new: Sequence[BaseMessage], known: set[str]) -> bool:
        """Whether something new takes the place of what is settled."""
        name = self._speaker.name
        return not (_replaced(new, name) | _results(new, name).keys()).isdisjoint(known)

    def _apart(
        self, rest: Sequence[BaseMessage]
    ) -> tuple[Sequence[BaseMessage], Sequence[BaseMessage]]:
        """Split messages behind the speaker's newest line whose calls, if any, have results."""
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
        before, behind = rest[:settled], rest[settled:]
        return ((), rest) if self._changes(behind, _known(before)) else (before, behind)

    def _told_apart(self, shown: "_Shown", text: str, about: MessageMetadata) -> str:
        """Mark what the conversation itself says, where it could be taken for another's words."""
        if is_told(about) and shown.heard:
            return self._conversation.mark_instruction(self._speaker, text)
        if not (is_told(about) or shown.heard or isinstance(about, JudgeQuestion)):
            shown.heard.add(about.speaker)
            if shown.view and isinstance(last := shown.view[-1], HumanMessage):
                # It was not known yet that another's words would follow in the same message.
                marked = self._conversation.mark_instruction(self._speaker, last.text)
                shown.view[-1] = HumanMessage(marked, name=last.name, id=last.id)
        return text

    def _add(self, shown: "_Shown", log: Sequence[BaseMessage]) -> None:
        name = self._speaker.name
        results, replaced = _results(log, name), _replaced(log, name)
        for message in log:
            about = metadata(message)
            if (
                # A result comes after its call.
                isinstance(message, ToolMessage)
                or place_of(message) in replaced
                or not is_in_view(message, about, name)
            ):
                continue
            if about.speaker == name:
                calls: Sequence[tuple[ToolCall, ToolMessage]] = ()
                if isinstance(about, SpeakerReply) and about.handed_to:
                    calls = handing_over(self._conversation, about, message)
                _add_own(shown, message, about, self._names[name], results, calls)
                continue
            text = heard_text(self._conversation, message, about)
            if self._in_prompt and not (shown.heard and about.speaker):
                text = self._told_apart(shown, text, about)
            to = about.to if isinstance(about, Instruction) else None
            if to not in (None, name):
                text = f"To {to}: {text}"
            elif about.audience is not None:
                text = as_heard_alone(self._conversation, about, name, text.strip() or SILENCE)
            before = self._prefixes.get(about.speaker or "", "")
            heard = _labelled(text, about.speaker if self._is_labelled else None)
            _add_heard(
                shown.view, f"{before}{heard}", message.id, self._names.get(about.speaker or "")
            )


class _Shown(NamedTuple):
    """A part of a view."""

    view: list[AnyMessage]  # what is sent
    results: dict[str, ToolMessage]  # the results of calls in it, as they stand in the log
    heard: set[str | None]  # who is heard in it


def _known(log: Sequence[BaseMessage]) -> set[str]:
    """What another message can take the place of: messages by their places, results by calls."""
    calls = {one.tool_call_id for one in log if isinstance(one, ToolMessage)}
    return calls | {place_of(message) for message in log}


def copied(view: Iterable[BaseMessage]) -> list[BaseMessage]:
    """Copy a view for who may change its messages; much faster than a deep copy of any message."""
    return [
        message.model_copy(
            update={
                # Beside calls of the turn that goes on stands what was thought with them.
                # A walk into what is empty takes as long as the rest.
                "content": text if isinstance(text := message.content, str) else deepcopy(text),
                "additional_kwargs": deepcopy(extra)
                if (extra := message.additional_kwargs)
                else {},
                "response_metadata": deepcopy(told) if (told := message.response_metadata) else {},
                **(
                    {"tool_calls": deepcopy(message.tool_calls)}
                    if isinstance(message, AIMessage) and message.tool_calls
                    else {}
                ),
            }
        )
        for message in view
    ]


def _replaced(log: Sequence[BaseMessage], name: str) -> set[str]:
    """The places of what this speaker has heard otherwise, since a hook changed it."""
    versions = (about for about in map(metadata, log) if isinstance(about, HookVersion))
    return {place for one in versions if one.is_heard_by(name) for place in one.instead_of}


def _results(log: Sequence[BaseMessage], name: str) -> dict[str, ToolMessage]:
    """The newest result of each call of this speaker."""
    return {
        message.tool_call_id: message
        for message in log
        if isinstance(message, ToolMessage) and is_in_view(message, metadata(message), name)
    }


def _add_own(
    shown: _Shown,
    message: BaseMessage,
    about: MessageMetadata,
    name: str,
    results: Mapping[str, ToolMessage],
    handed: Sequence[tuple[ToolCall, ToolMessage]],
) -> None:
    """Add a line of the speaker's own, with the results of its calls after it."""
    view = shown.view
    made = calls_of(message) if isinstance(message, AIMessage) else []
    new = {call["id"] for call in made if call["id"] in results} - shown.results.keys()
    calls = [call for call in made if _taken(new, call["id"])]
    text, calls = put_back(
        message.text, calls, about.to_user if isinstance(about, SpeakerReply) else {}
    )
    text = text.strip()
    if not (text or calls or handed):
        # Calls that have not run yet are not shown.
        if isinstance(about, ToolCalls):
            return
        text = SILENCE
    last = view[-1] if view else None
    if isinstance(last, AIMessage):
        view.pop()
        text = _joined(last.text, text)
    made = [*calls, *[call for call, _ in handed]]
    view.append(AIMessage(text, name=name, tool_calls=made, id=message.id))
    for call_id in (str(call["id"]) for call in calls):
        shown.results[call_id] = results[call_id]
        view.append(_as_sent(results[call_id]))
    view += [result for _, result in handed]


def _as_sent(result: ToolMessage) -> ToolMessage:
    """The result of a call without what stands beside it in the log."""
    return ToolMessage(
        result.text or SILENCE,
        tool_call_id=result.tool_call_id,
        status=result.status,
        id=result.id,
    )


def _taken(new: set[str | None], call_id: str | None) -> bool:
    """Take an id out of those not shown yet; whether it was among them."""
    if call_id not in new:
        return False
    new.remove(call_id)
    return True


def _labelled(text: str, name: str | None) -> str:
    """A line heard from another, with its name in front where there is one to tell."""
    text = text.strip() or SILENCE
    # Models that hear labels like to write their own.
    return text if name is None or text.startswith(f"{name}:") else f"{name}: {text}"


def _add_heard(view: list[AnyMessage], text: str, id_: str | None, name: str | None) -> None:
    """Add a line heard from another, joined to the one before it where that was heard too."""
    last = view[-1] if view else None
    if isinstance(last, HumanMessage):
        view.pop()
        text = _joined(last.text, text)
        if last.name != name:
            name = None
    view.append(HumanMessage(text, name=name, id=id_))


def _joined(before: str, after: str) -> str:
    return "\n\n".join(part for part in (before, after) if part)


def heard_since(log: Sequence[BaseMessage], name: str) -> list[str]:
    """Give the places of what a speaker has heard, and not forgotten, since its own latest line."""
    found: list[str] = []
    for message in reversed(remembered(log, name)):
        about = metadata(message)
        if isinstance(message, ToolMessage) or not is_in_view(message, about, name):
            continue
        if about.speaker == name:
            break
        found.append(place_of(message))
    return found[::-1]


def newly_heard(conversation: Conversation, log: Sequence[BaseMessage], name: str) -> str:
    """Give what a speaker has heard since its own latest line, as it stands in its view."""
    since = {*heard_since(log, name)}
    view = viewpoint(conversation, [message for message in log if place_of(message) in since], name)
    last = view[-1] if view else None
    return last.text if isinstance(last, HumanMessage) else ""


def overheard(log: Sequence[BaseMessage], *, private: bool) -> str:
    """Write down what was said, as somebody hears it who takes no part."""
    spoken = ((message, metadata(message)) for message in log)
    return "\n\n".join(
        f"{_from_outside(about)}: {message.text.strip() or SILENCE}"
        for message, about in spoken
        if (private or about.audience is None) and says_something(message, about)
    )


def _from_outside(about: MessageMetadata) -> str:
    if about.audience is None:
        return f"{about.speaker}"
    if about.confidants:
        return f"{about.speaker} (to {' and '.join(about.confidants)} only)"
    return f"{about.speaker} (private)"
