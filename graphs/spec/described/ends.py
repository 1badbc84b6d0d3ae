"""What ends a conversation, in a few words."""

from ...speakers.replies import HumanInputMode, HumanReply
from ..end_chat import EndChatMode
from ..ends import (
    AllOf,
    AnyOf,
    DoneToken,
    End,
    MaxCost,
    NoCodeBlock,
    Predicate,
    StopRequested,
    ToolCalled,
)
from ..fields import ConversationFields
from ..judges import SeparateJudge


def how_it_ends(conversation: ConversationFields) -> list[str]:
    """Say what ends a conversation, each in a few words."""
    end_chat = conversation.end_chat
    cap = end_chat.max_iterations
    found = [f"after {cap} rounds" if cap != 1 else "after 1 round"] if cap is not None else []
    found += [_when(end) for end in parts(end_chat.when)]
    if end_chat.mode is not EndChatMode.MAX_ITERATIONS_ONLY:
        asked = ", ".join(conversation.stoppers)
        who = "the judge is" if isinstance(conversation.judge, SeparateJudge) else "it is"
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


def _when(end: End) -> str:
    by = (end.by or "anybody") if isinstance(end, DoneToken | NoCodeBlock) else ""
    said = f"when {by} gives no code" if isinstance(end, NoCodeBlock) else f"at {words(end)}"
    if not isinstance(end, DoneToken):
        return said
    return f"when {by}'s {words(end)}" if end.answered else f"when {by} {words(end)}"


def parts(end: End | None) -> tuple[End, ...]:
    """The ends any of which is enough."""
    if isinstance(end, AnyOf):
        return tuple(part for one in end.of for part in parts(one))
    return () if end is None else (end,)


def words(end: End) -> str:
    """Say what must happen for an end to hold, in a few words."""
    match end:
        case AllOf(of=parts):
            return " and ".join(map(words, parts))
        case AnyOf(of=parts):
            return " or ".join(map(words, parts))
        case DoneToken(token=token):
            return f"{token} is answered" if end.answered else f"says {token}"
        case Predicate(name=name):
            return f"{name}()"
        case ToolCalled(tool=tool):
            return f"{tool} was called"
        case NoCodeBlock():
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
