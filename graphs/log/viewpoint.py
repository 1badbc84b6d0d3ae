"""The log as one speaker sees it: a pure projection, made anew for each turn and never stored.

The speaker's own lines are the assistant's, the others' are the user's, neighbours in one role are
joined, and what the speaker may not hear is left out (Lagent's aggregator, tau2-bench's flipped
roles). The conversation's rules for providers are kept here: a system message only in front, no
two turns in one role, no call without its result, names that providers accept.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import count

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.tool import ToolCall

from ..speakers.speaker import Speaker
from ..spec.conversation import Conversation
from .call_text import put_back
from .kinds import Kind
from .messages import About, is_said, line, place_of
from .remembered import is_in_view, remembered

SILENCE = "(says nothing)"
"""What stands for a blank message, which many providers refuse."""


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
    speaker = conversation.speaker(name)
    log = remembered(log, name)
    names = provider_names(conversation.names)
    results = _results(log, name)
    read = [(message, line(message)) for message in log]
    replaced = _replaced(read, name)
    view: list[BaseMessage] = []
    for message, about in read:
        if place_of(message) in replaced or not is_in_view(message, about, name):
            continue
        if isinstance(message, ToolMessage):
            # It comes after its call.
            continue
        if about.speaker == name:
            _add_own(view, message, about, names[name], results)
        else:
            if about.to not in (None, name):
                message = HumanMessage(f"To {about.to}: {message.text}", id=message.id)
            before = speaker.prefixes.get(about.speaker or "", "")
            label = conversation.hears_labels(speaker)
            _add_heard(view, message, about, names, label=label, before=before)
    front: list[BaseMessage] = [SystemMessage(system)] if system else []
    front += _shown(speaker, names[name])
    if speaker.examples and view and isinstance(view[0], AIMessage):
        # An example is no line of the speaker's own, and two turns in one role are refused.
        front.append(HumanMessage(SILENCE))
    return front + view


def _shown(speaker: Speaker, name: str) -> Iterator[BaseMessage]:
    """The speaker's examples."""
    for example in speaker.examples:
        if example.role == "user":
            yield HumanMessage(example.content)
        else:
            yield AIMessage(example.content, name=name)


def _replaced(read: Iterable[tuple[BaseMessage, About]], name: str) -> set[str]:
    """The places of what this speaker has heard otherwise, since a hook changed it."""
    return {replaced for _, about in read if about.heard_by(name) for replaced in about.instead_of}


def heard_since(log: Sequence[BaseMessage], name: str) -> list[str]:
    """Give the places of what a speaker has heard, and not forgotten, since its own latest line."""
    found: list[str] = []
    for message in reversed(remembered(log, name)):
        about = line(message)
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
    spoken = ((message, line(message)) for message in log)
    return "\n\n".join(
        f"{_from_outside(about)}: {message.text.strip() or SILENCE}"
        for message, about in spoken
        if (private or about.audience is None) and is_said(message, about)
    )


def _from_outside(about: About) -> str:
    return f"{about.speaker}" if about.audience is None else f"{about.speaker} (heard by nobody)"


def _results(log: Sequence[BaseMessage], name: str) -> dict[str, ToolMessage]:
    """The newest result of each call of this speaker, as it is sent."""
    return {
        message.tool_call_id: ToolMessage(
            message.text or SILENCE,
            tool_call_id=message.tool_call_id,
            status=message.status,
            id=message.id,
        )
        for message in log
        if isinstance(message, ToolMessage) and is_in_view(message, line(message), name)
    }


def _add_own(
    view: list[BaseMessage],
    message: BaseMessage,
    about: About,
    name: str,
    results: Mapping[str, ToolMessage],
) -> None:
    """Add a line of the speaker's own, with the results of its calls after it."""
    made = _calls(message) if isinstance(message, AIMessage) else []
    new = {call["id"] for call in made if call["id"] in results}
    if new:
        new -= {seen.tool_call_id for seen in view if isinstance(seen, ToolMessage)}
    calls = [call for call in made if _taken(new, call["id"])]
    text, calls = put_back(message.text, calls, about.to_user)
    text = text.strip()
    if not text and not calls:
        # Calls that have not run yet are not shown.
        if about.kind is Kind.TOOL_CALLS:
            return
        text = SILENCE
    last = view[-1] if view else None
    if isinstance(last, AIMessage):
        view.pop()
        text = _joined(last.text, text)
    view.append(AIMessage(text, name=name, tool_calls=calls, id=message.id))
    view.extend(results[str(call["id"])] for call in calls)


def _taken(new: set[str | None], call_id: str | None) -> bool:
    """Take an id out of those not shown yet; whether it was among them."""
    if call_id not in new:
        return False
    new.remove(call_id)
    return True


def _calls(message: AIMessage) -> list[ToolCall]:
    """Copies of all calls of a message. Servers read arguments as JSON: broken ones are empty."""
    broken = (
        ToolCall(name=call["name"] or "unknown", args={}, id=call["id"])
        for call in message.invalid_tool_calls
    )
    # Who is shown them may change them, down to a list among the arguments.
    return [*deepcopy(message.tool_calls), *broken]


def _add_heard(
    view: list[BaseMessage],
    message: BaseMessage,
    about: About,
    names: Mapping[str, str],
    *,
    label: bool,
    before: str,
) -> None:
    """Add a line heard from another, joined to the one before it where that was heard too."""
    text = message.text.strip()
    if not text:
        text = SILENCE
    # Models that hear labels like to write their own.
    if label and about.speaker is not None and not text.startswith(f"{about.speaker}:"):
        text = f"{about.speaker}: {text}"
    text = f"{before}{text}"
    name = names.get(about.speaker) if about.speaker is not None else None
    last = view[-1] if view else None
    if isinstance(last, HumanMessage):
        view.pop()
        text = _joined(last.text, text)
        if last.name != name:
            name = None
    view.append(HumanMessage(text, name=name, id=message.id))


def _joined(before: str, after: str) -> str:
    return "\n\n".join(part for part in (before, after) if part)


def provider_names(names: Sequence[str]) -> dict[str, str]:
    """Map display names to names that providers accept, each to its own."""
    mapped: dict[str, str] = {}
    for number, name in enumerate(names, start=1):
        # ASCII only: \w would let through letters that providers refuse.
        plain = re.sub(r"[^a-zA-Z0-9_-]+", "_", name).strip("_")[:60] or f"speaker_{number}"
        # A number keeps names apart that differ in signs only, or after the cut; counted on where
        # another name ends in that very number.
        free = plain
        for suffix in count(number):
            if free not in mapped.values():
                break
            free = f"{plain[:56]}_{suffix}"
        mapped[name] = free
    return mapped
