"""Conversations of every kind for the tests of forks, and their scripts. No tests here."""

from typing import Any

from duologue.graphs import (
    Conversation,
)
from duologue.nodes.testing import Line, Reply, ScriptedToolCall

from .fork_help import (
    NO,
    YES,
)


def talk(form: str = "structured", **fields: Any) -> Conversation:
    """Return a conversation whose log contains every kind of message: see `script`."""
    return Conversation.model_validate(
        {
            "task": "Plan a garden",
            "task_specification": {"word_limit": 4},
            "speakers": [
                {"name": "Ann", "task": "Dig", "tools": ["weather"], "checks_completion": True},
                {
                    "name": "Ben",
                    "task": "Plant",
                    "checks_completion": True,
                    "keep_self_reflection": True,
                },
            ],
            "opening": {"answers": True},
            "judge": {"form": form},
            "end_chat": {
                "mode": "one_last_group_chat_after_first_completion",
                "max_iterations": 3,
            },
            **fields,
        }
    )


def script(form: str = "structured") -> list[Line]:
    no: list[Line] = [NO] if form == "structured" else ["Water is left.", "No."]
    yes: list[Line] = [YES] if form == "structured" else ["Nothing.", "Yes."]
    calls = [
        ScriptedToolCall(name="weather", args={"day": "Monday"}, id="a"),
        ScriptedToolCall(name="weather", args="{", id="b"),
    ]
    return [
        *("Plan a very, very big garden.", "Plan a big garden."),
        *("I dig.", " ", "I plant."),
        *("Where?", *no),
        *(Reply(tool_calls=calls), "By the wall.", *no),
        *("Good.", *yes),
        *("", "Bye.", "Farewell."),
    ]


def moderated() -> tuple[Conversation, list[Line]]:
    """Return a conversation with a moderator, secrets, a separate judge, and a maximum cost."""
    conversation = Conversation.model_validate(
        {
            "task": "Plan a garden",
            "speakers": [
                {"name": "Ann", "private_opening": {"prompt": "Choose a number."}},
                {"name": "Ben", "private_opening": {"lines": ["You hate beans."]}},
                {"name": "Cat", "keep_self_reflection": True},
            ],
            "turn_order": {"kind": "moderator"},
            "judge": {"kind": "separate", "criteria": ["They agree.", "They are kind."]},
            "end_chat": {
                "mode": "one_last_group_chat_after_first_completion",
                "allow_unanswered_end": True,
            },
            "prices": {"ScriptedChatModel": {"input": 1.5, "output": 6}},
        }
    )
    no = {"criterion_1": "not_met", "criterion_2": "met"}
    yes = {"criterion_1": "met", "criterion_2": "met"}
    return conversation, [
        *("Seven.", "A1", no, {"next_speaker": "Cat"}),
        *("C1", no, "nobody at all", "Ann or Ben"),
        *("A2", no, {"next_speaker": "Ben"}),
        *("", "Beans?", yes),
        *("C, last", "A, last", "B, last"),
    ]


def chosen() -> tuple[Conversation, list[Line]]:
    """Return a conversation with a turn function and opening messages, until a tool is called."""
    names = ["Ann", "Ben", "Cat"]
    call = Reply(tool_calls=[ScriptedToolCall(name="weather", args={"day": "Monday"}, id="a")])
    conversation = Conversation.model_validate(
        {
            "speakers": [
                {"name": name, "task": f"Be {name}", "tools": ["weather"]} for name in names
            ],
            "opening": {"answers": True, "reconcile": True, "first_speaker": "Cat"},
            "turn_order": {"kind": "function", "name": "backwards"},
            "end_chat": {
                "when": [
                    {"kind": "tool_called", "tool": "weather", "by": "Ann"},
                    {"kind": "predicate", "name": "enough"},
                ]
            },
        }
    )
    return conversation, ["A", "B", "C", "C1", call, "B1", call]


def hooked() -> tuple[Conversation, list[Line]]:
    """Return a conversation whose messages pass hooks or come from a function."""
    calls = [
        ScriptedToolCall(name="weather", args={"day": "Monday"}, id="a"),
        ScriptedToolCall(name="weather", args="{", id="b"),
    ]
    conversation = Conversation.model_validate(
        {
            "speakers": [
                {
                    "name": "Ann",
                    "task": "Dig",
                    "hooks": ["all"],
                    "tools": ["weather"],
                    "checks_completion": True,
                    "private_opening": {"prompt": "Choose a number."},
                },
                {
                    "name": "Ben",
                    "task": "Plant",
                    "replies": [{"kind": "function", "name": "once"}, "model"],
                },
            ],
            "opening": {"answers": True, "first_speaker": "Ann"},
            "end_chat": {"mode": "one_last_group_chat_after_first_completion"},
        }
    )
    return conversation, [
        *("Seven.", "", "I dig.", "I plant."),
        *(Reply(text="Let me see.", tool_calls=calls), "By the wall.", NO),
        *(Reply(tool_calls=calls[:1]), "", "Good.", YES),
        "Farewell.",
    ]


def coded() -> tuple[Conversation, list[Line]]:
    """Return a conversation in which one speaker runs another's code (A7)."""
    conversation = Conversation.model_validate(
        {
            "task": "Compute",
            "speakers": [
                {"name": "Ann", "checks_completion": True},
                {"name": "Ben", "replies": ["code", "model"]},
            ],
            "end_chat": {"mode": "end_chat_after_first_completion"},
            "sandbox": {"level": "monty"},
        }
    )
    first, second = (f"```python\n{code}\n```" for code in ("x = 20", "print(x + 1)"))
    return conversation, [first, NO, second, NO, "So 21?", NO, "Yes.", "It is 21.", YES]


TALKS: dict[str, tuple[Conversation, list[Line]]] = {
    "structured": (talk(), script()),
    "two_questions": (talk("two_questions"), script("two_questions")),
    "moderated": moderated(),
    "chosen": chosen(),
    "hooked": hooked(),
    "coded": coded(),
}
