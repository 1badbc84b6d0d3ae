"""What ends a conversation, in a few words, and what is known where it does."""

from ..rules.position import Facts
from ..speakers.speaker import Speaker
from ..spec.ends import (
    AllOf,
    AnyOf,
    DoneToken,
    End,
    EndingTool,
    MaxCalls,
    MaxCost,
    MaxMessages,
    MaxSeconds,
    MaxTokens,
    NoCode,
    Predicate,
    StopRequested,
    leaves,
)


def parts(end: End | None) -> tuple[End, ...]:
    """The ends any of which is enough."""
    if isinstance(end, AnyOf):
        return tuple(part for one in end.of for part in parts(one))
    return () if end is None else (end,)


def facts_of(end: End, speaker: Speaker) -> Facts | None:
    """What is known where an end holds by what a speaker does last; None where it has no part."""
    talks = any(reply.kind in ("model", "human", "function", "agent") for reply in speaker.replies)
    has_part = False
    known = Facts()
    for _, one in leaves(end):
        who: str | None = None
        update: dict[str, object] = {}
        match one:
            case DoneToken(token=token, by=by):
                who = by or speaker.name if talks else by
                update = {"tokens_said": (*known.tokens_said, (token, who or ""))}
            case EndingTool(tool=tool, by=by):
                who = by or speaker.name if tool in speaker.tools else by
                update = {"tools_called": (*known.tools_called, (tool, who or ""))}
            case Predicate(name=name):
                who = speaker.name
                update = {"predicates": (*known.predicates, str(name))}
            case NoCode(by=who):
                update = {"no_code_by": who}
            case StopRequested():
                update = {"stop_requested": True}
            case MaxMessages() | MaxCalls() | MaxTokens() | MaxCost() | MaxSeconds():
                update = {one.kind.removeprefix("max_"): one.limit}
        known = known.model_copy(update=update)
        has_part = has_part or who == speaker.name
    return known if has_part else None


def words(end: End) -> str:
    """Say what must happen for an end to hold, in a few words."""
    match end:
        case AllOf(of=parts):
            return " and ".join(map(words, parts))
        case AnyOf(of=parts):
            return " or ".join(map(words, parts))
        case DoneToken(token=token):
            return f"says {token}"
        case Predicate(name=name):
            return f"{name}()"
        case EndingTool(tool=tool):
            return f"{tool} was called"
        case NoCode():
            return "no code"
        case StopRequested():
            return "a request to stop"
        case MaxCost(limit=cost):
            return f"{cost:g} spent"
        case _:
            return counted(end.limit, end.kind.removeprefix("max_").removesuffix("s"))


def counted(count: float, one: str, more: str = "") -> str:
    """Say how many there are of something."""
    number = f"{count:,}".removesuffix(".0")
    return f"{number} {one if count == 1 else more or one + 's'}"
