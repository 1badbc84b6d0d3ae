"""What a speaker remembers of a log: what its memory being reset, or replaced, leaves in its view.

Pure functions. How a speaker sees what it remembers is in `graphs.log.viewpoint`; what is
written when a memory is reset is in `graphs.sessions.forgetting`.
"""

from collections.abc import Iterator, Sequence

from langchain_core.messages import BaseMessage, SystemMessage, ToolMessage

from .kinds import Kind
from .messages import About, line, place_of


def remembered(log: Sequence[BaseMessage], name: str) -> list[BaseMessage]:
    """Leave out of a log what a speaker has forgotten."""
    place = next(
        (place for place in reversed(range(len(log))) if _forgets(log[place], name)),
        None,
    )
    if place is None:
        return list(log)
    since = line(log[place]).since
    first = next((number for number in range(place) if place_of(log[number]) == since), place)
    behind = log[place + 1 :]
    loaded = [message for message in behind if _is_loaded(message, name)]
    # An earlier reset, what was loaded then, and a summary are of what is forgotten now.
    kept = [message for message in log[first:place] if not _is_of_the_past(message, name)]
    return [*loaded, *kept, *(message for message in behind if not _is_loaded(message, name))]


def memory(log: Sequence[BaseMessage], name: str) -> list[BaseMessage]:
    """Give what is in a speaker's memory, message by message."""
    known = [message for message in remembered(log, name) if line(message).kind is not Kind.SUMMARY]
    found = [message for message in known if is_in_view(message, line(message), name)]
    return list(_as_hooks_made_it(found))


def _forgets(message: BaseMessage, name: str) -> bool:
    about = line(message)
    return about.kind is Kind.FORGOTTEN and about.speaker == name


def _is_loaded(message: BaseMessage, name: str) -> bool:
    about = line(message)
    return about.kind is Kind.REMEMBERED and about.heard_by(name)


def _is_of_the_past(message: BaseMessage, name: str) -> bool:
    about = line(message)
    return about.kind.row.is_memory and (name == about.speaker or name in (about.audience or ()))


def is_in_view(message: BaseMessage, about: About, name: str) -> bool:
    """Whether a line that a speaker remembers stands in its view, where no hook has changed it."""
    if isinstance(message, SystemMessage):
        return False
    row = about.kind.row
    if about.speaker == name:
        return row.own == "always" or (row.own == "heard" and about.heard_by(name))
    # Others hear only the text of a call of tools, and no result.
    says_nothing = about.kind is Kind.TOOL_CALLS and not message.text.strip()
    return about.heard_by(name) and not says_nothing and not isinstance(message, ToolMessage)


def _as_hooks_made_it(found: Sequence[BaseMessage]) -> Iterator[BaseMessage]:
    made = [message for message in found if line(message).instead_of]
    instead = {one: message for message in made for one in line(message).instead_of}
    known = {place_of(message) for message in found}
    for message in found:
        other = instead.get(place_of(message))
        if other is not None:
            # It stands once, in the place of the first of those that it takes the place of.
            if line(other).instead_of[0] == place_of(message):
                yield other
        elif message not in made or not known.intersection(line(message).instead_of):
            yield message


def is_told(about: About) -> bool:
    """Whether the conversation itself tells something."""
    return about.speaker is None and about.kind in (Kind.INSTRUCTION, Kind.REMEMBERED)
