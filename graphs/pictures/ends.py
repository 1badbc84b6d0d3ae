"""What ends a conversation, in a few words, and what is known where it does."""

from ..rules.position import Facts
from ..speakers.speaker import Speaker
from ..spec.ends import (
    DoneToken,
    End,
    MaxCalls,
    MaxCost,
    MaxMessages,
    MaxSeconds,
    MaxTokens,
    NoCodeBlock,
    Predicate,
    StopRequested,
    ToolCalled,
    leaves,
)


def facts_of(end: End, speaker: Speaker) -> Facts | None:
    """What is known where an end holds by what a speaker does last; None where it has no part."""
    talks = any(reply.kind in ("model", "human", "function", "agent") for reply in speaker.replies)
    has_part = False
    known = Facts()
    for _, one in leaves(end):
        who: str | None = None
        update: dict[str, object] = {}
        match one:
            case DoneToken(token=token, by=by, answered=True):
                # The speaker answers what another has said.
                who = speaker.name if by != speaker.name else None
                update = {"tokens_said": (*known.tokens_said, (token, by or ""))}
            case DoneToken(token=token, by=by):
                who = by or speaker.name if talks else by
                update = {"tokens_said": (*known.tokens_said, (token, who or ""))}
            case ToolCalled(tool=tool, by=by):
                who = by or speaker.name if tool in speaker.tools else by
                update = {"tools_called": (*known.tools_called, (tool, who or ""))}
            case Predicate(name=name):
                who = speaker.name
                update = {"predicates": (*known.predicates, str(name))}
            case NoCodeBlock(by=who):
                update = {"no_code_by": who}
            case StopRequested():
                update = {"stop_requested": True}
            case MaxMessages() | MaxCalls() | MaxTokens() | MaxCost() | MaxSeconds():
                update = {one.kind.removeprefix("max_"): one.limit}
        known = known.model_copy(update=update)
        has_part = has_part or who == speaker.name
    return known if has_part else None
