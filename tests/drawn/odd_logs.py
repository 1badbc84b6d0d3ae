"""Logs drawn line by line, of all kinds and in any order: more than any conversation writes."""

from random import Random
from typing import Any

from langchain_core.messages import AnyMessage
from langchain_core.messages.tool import tool_call

from duologue.graphs import Conversation
from support.log import KINDS, Failure, Flaw, Source, Stage, make_line, make_tool_line, place_name

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
        message = make_tool_line(number, text, speaker=name, call_id=str(call["id"]), **given)
        return message.model_copy(update={"id": f"id{number}-{random.randint(0, 10**9)}"})
    kind = random.choice((*["speech"] * 12, "tool_calls", "tool_calls", *KINDS))
    if kind in ("tool_result", "unheard_result", "removed"):
        kind = "speech"
    places = [place_name(place) for place in range(number)]
    about: dict[str, Any] = {
        "speaker": name,
        "audience": random.choice((None, None, None, (), (name,), names[:1])),
        "stage": random.choice((*[Stage.ROUNDS] * 6, *Stage)),
        "source": random.choice((*[Source.MODEL] * 6, *Source)),
        "flaw": random.choice((None, None, None, *Flaw)),
    }
    if kind in ("instruction", "judge_question", "hook_version", "earlier_end"):
        about["speaker"] = None
    if kind == "hook_version" and places:
        about["instead_of"] = tuple(sorted(random.sample(places[-4:], min(2, len(places)))))
    if kind in ("summary", "memory_reset"):
        about["since"] = random.choice([None, *places])
    if kind == "reflection":
        about["verdict"] = {
            "speaker": name,
            "complete": False,
            "readable": random.random() < 0.5,
        }
    calls = []
    if kind in ("tool_calls", "code"):
        tool = "python" if kind == "code" else "add"
        calls = [
            tool_call(name=tool, args={"a": random.randint(1, 2)}, id=f"c{number}-{place}")
            for place in range(random.randint(1, 2))
        ]
    own = f"id{number}-{random.randint(0, 10**9)}"
    if kind == "earlier_end":
        about["outcome"] = {}
    if kind == "inner_session":
        inner = {"task": text, "speakers": [{"name": "Cat"}, {"name": "Dan"}]}
        about |= {"conversation": inner, "summary": "0 messages: it failed"}
    fields = {field: value for field, value in about.items() if field in KINDS[kind]}
    return make_line(number, text, kind, id=own, tool_calls=calls, **fields)
