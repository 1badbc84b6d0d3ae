"""Logs drawn line by line, of all kinds and in any order: more than any conversation writes."""

from random import Random
from typing import Any, get_args

from langchain_core.messages import AnyMessage
from langchain_core.messages.tool import tool_call

from duologue.graphs.conversation.conversation import Conversation
from duologue.graphs.conversation.judges import Verdict
from duologue.graphs.log.messages import make_message, make_tool_message, place_name
from duologue.graphs.log.metadata import (
    NOBODY,
    AnyMetadata,
    CodeCalls,
    EarlierEnd,
    Failure,
    Flaw,
    HookVersion,
    InnerSession,
    Instruction,
    JudgeQuestion,
    MemoryReset,
    Reflection,
    RemovedMessage,
    Source,
    Speech,
    Stage,
    Summary,
    ToolCalls,
    ToolResult,
    UnheardResult,
)

NAMES = ("Ann", "Bob", "Cid")

_ENDS = (
    None,
    {"kind": "done_token", "token": "DONE"},
    {"kind": "done_token", "token": "DONE", "by": "Bob"},
    {"kind": "tool_called", "tool": "add"},
)
_REPLIES = (
    ["model"],
    [{"kind": "human", "human_input_mode": "NEVER", "sees_calls": True}, "model"],
    [{"kind": "human", "human_input_mode": "NEVER"}, {"kind": "text", "text": "Go on."}],
    [{"kind": "text", "text": "First of all.", "once": True}, "model"],
    ["code", "model"],
)
_CONTEXTS = (
    "all",
    {"kind": "last", "limit": 3},
    {"kind": "tokens", "limit": 600},
    {"kind": "summary", "limit": 600, "words": 20},
)
_EXAMPLES: tuple[list[dict[str, str]], ...] = (
    [],
    [{"role": "user", "content": "How?"}, {"role": "assistant", "content": "Like this."}],
)
_TEXTS = (
    *("", "...", "DONE", "Thank you!", "Goodbye, and thanks for all.", "TERMINATE"),
    "Please run this.\n```python\nprint(1)\n```",
    "The garden has roses, tulips and a small pond.",
    "The garden has roses, tulips and a small  pond!",
    "The garden has roses, lilies and a small pond.",
    "Too high, please try a lower number than that.",
    *("Is it 41?", "Is it 42?"),
    "word " * 90,
)


def odd_conversation(random: Random) -> Conversation:
    """Draw a conversation of two or three."""
    names = NAMES[: random.choice((2, 2, 3))]
    speakers = [_speaker(random, name, names) for name in names]
    has_tools = any(speaker.get("tools") for speaker in speakers)
    when = random.choice(_ENDS if has_tools else _ENDS[:-1])
    end_chat = {"max_iterations": 99, "when": when}
    given = {"task": "Talk.", "speakers": speakers, "end_chat": end_chat}
    return Conversation.model_validate(given)


def _speaker(random: Random, name: str, names: tuple[str, ...]) -> dict[str, Any]:
    replies = random.choice(_REPLIES)
    prefixed = [other for other in names if other != name and random.random() < 0.3]
    return {
        "name": name,
        "replies": replies,
        "tools": ["add"] if "model" in replies else [],
        "context": random.choice(_CONTEXTS),
        "task": random.choice((None, "Keep it short.")),
        "prefixes": dict.fromkeys(prefixed, "From there: "),
        "examples": random.choice(_EXAMPLES),
        "labels": random.choice((None, True, False)),
    }


def odd_line(random: Random, names: tuple[str, ...], log: list[AnyMessage]) -> AnyMessage:
    """Draw the next line of a log."""
    number, name = len(log), random.choice(names)
    text = random.choice(_TEXTS)
    called = [call for one in log if one.type == "ai" for call in one.tool_calls]
    if called and random.random() < 0.6:
        call = random.choice(called[-3:])
        failure = random.choice((None, None, *Failure))
        final = random.random() < 0.8
        given: dict[str, Any] = {"failure": failure, "final": final}
        message = make_tool_message(number, text, speaker=name, call_id=str(call["id"]), **given)
        return message.model_copy(update={"id": f"id{number}-{random.randint(0, 10**9)}"})
    kind = random.choice((*[Speech] * 12, ToolCalls, ToolCalls, *get_args(AnyMetadata)))
    if kind in (ToolResult, UnheardResult, RemovedMessage):
        kind = Speech
    places = [place_name(place) for place in range(number)]
    about: dict[str, Any] = {
        "speaker": name,
        "audience": random.choice((None, None, None, NOBODY, (name,), names[:1])),
        "stage": random.choice((*[Stage.ROUNDS] * 6, *Stage)),
        "source": random.choice((*[Source.MODEL] * 6, *Source)),
        "flaw": random.choice((None, None, None, *Flaw)),
    }
    if kind in (Instruction, JudgeQuestion, HookVersion, EarlierEnd):
        about["speaker"] = None
    if kind is HookVersion and places:
        about["instead_of"] = tuple(sorted(random.sample(places[-4:], min(2, len(places)))))
    if kind in (Summary, MemoryReset):
        about["since"] = random.choice([None, *places])
    if kind is Reflection:
        about["verdict"] = Verdict(speaker=name, complete=False, readable=random.random() < 0.5)
    calls = []
    if kind in (ToolCalls, CodeCalls):
        tool = "python" if kind is CodeCalls else "add"
        calls = [
            tool_call(name=tool, args={"a": random.randint(1, 2)}, id=f"c{number}-{place}")
            for place in range(random.randint(1, 2))
        ]
    own = f"id{number}-{random.randint(0, 10**9)}"
    if kind is EarlierEnd:
        about["outcome"] = {}
    if kind is InnerSession:
        inner = {"task": text, "speakers": [{"name": "Cat"}, {"name": "Dan"}]}
        about |= {"conversation": inner, "summary": "0 messages: it failed"}
    fields = {field: value for field, value in about.items() if field in kind.model_fields}
    return make_message(number, text, kind(**fields), id=own, tool_calls=calls)
