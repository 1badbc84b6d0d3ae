"""Replies of the models in programs of README and `docs/tutorial.md`, in the order of the calls.

The pages show the output of their programs; these are the words in it. Each page has one entry for
each of its Python blocks, in the order of the page.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from duologue.nodes.testing import Line, Prompt, Reply, Script, ScriptedToolCall


def _call(name: str, **arguments: object) -> Reply:
    call = ScriptedToolCall(name=name, args=arguments, id=f"call_{name}")
    return Reply(tool_calls=(call,))


_GARDEN: Final = [
    "Plan a kitchen garden of ten square metres.",
    "Instruction: Choose the beds.\nInput: None",
    "Solution: Two long beds along the fence. Next request.",
]

_MET: Final = '{"criterion_1": "met", "criterion_2": "met"}'
_NOT_MET: Final = '{"criterion_1": "not_met", "criterion_2": "not_met"}'

_ASKS: Final = "Hello, I was charged twice for order 1042. I would like one charge back."
_PROMISES: Final = "I am sorry. You will get one charge back within five days."
_REFUNDED: Final = "I see both charges, and I have paid 18.90 back to you."
_NOT_LOOKED_UP: Final = '{"criterion_1": "not_met", "criterion_2": "met"}'


def _help_desk(messages: Prompt) -> Line:
    """Reply as the customer, the clerk or the judge, in sessions that run at the same time."""
    if "The clerk refunds one charge." in messages[0]["content"]:
        return _MET
    if "You were charged twice" in messages[0]["content"]:
        return _ASKS
    match sum(message["role"] == "tool" for message in messages):
        case 0:
            return _call("find_order", number=1042)
        case 1:
            return _call("refund", number=1042, amount=18.9)
        case _:
            return _REFUNDED


REPLIES: Final[Mapping[str, Sequence[Script]]] = {
    "README.md": [
        [
            "Good morning. The hull needs paint before summer. Would you take 3,200?",
            "I painted it last year. It comes with a new sail and the trailer: 4,100.",
            "With the sail and the trailer I can pay 3,700.",
            "3,700 this week, and I show you how to sail her. Agreed.",
            "DEAL",
        ],
        ["Hello, please refund one of the two charges for order 1042.", "###STOP###"],
        [
            *_GARDEN,
            "Instruction: Choose plants for the beds.\nInput: One bed is in the shade.",
            "Solution: Beans along the fence, kale in the half shade, and herbs next to the door. "
            "Next request.",
        ],
        [
            "How about the museum of ships?",
            "There is an indoor pool next to it. Shall we do both?",
            _NOT_MET,
            "Yes, ships first. The museum is free on Sundays.",
            _NOT_MET,
            "And the pool costs me 9 euros. I am in.",
            _MET,
        ],
        [
            _call("find_order", number=1042),
            "Your order 1042 was shipped on Monday.",
        ],
        ["The Pantheon: it is free in the morning, and empty before nine."],
        [
            *_GARDEN,
            "Solution: Three round beds around the well. Next request.",
            "Instruction: Choose plants.\nInput: None",
            "Solution: Beans and kale. Next request.",
        ],
    ],
    "docs/tutorial.md": [
        [
            "Hello, I was charged twice for one order.",
            "I am sorry to hear that. Which order is it?",
            "Order 1042. I would like one charge back.",
            "Of course. You will get it back within five days.",
        ],
        [_ASKS, _PROMISES, "Thank you very much! ###STOP###"],
        [
            _ASKS,
            _PROMISES,
            _NOT_LOOKED_UP,
            "Thank you very much! ###STOP###",
        ],
        [
            _ASKS,
            _call("find_order", number=1042),
            "I see both charges of 18.90. One is on its way back to you.",
            _MET,
        ],
        [
            _ASKS,
            _call("find_order", number=1042),
            _call("refund", number=1042, amount=18.9),
        ],
        [_REFUNDED, _MET],
        _help_desk,
    ],
}
