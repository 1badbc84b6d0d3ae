"""Drawn conversations of every shape: modes, ends, judges, orders, and features of speakers."""

from typing import Any

from hypothesis import strategies as st

from duologue.graphs import (
    Conversation,
    DoneToken,
    EndChatMode,
    MaxCalls,
    MaxMessages,
    Predicate,
    StopRequested,
    ToolCalled,
)
from duologue.graphs.conversation.conversation import has_hand_off_tool
from duologue.graphs.conversation.limits import least_limit
from support.ends import End

DONE = "DONE"
WON = "WON"
NAMES = ("Ann", "Bob", "Cid", "Dot")

BEFORE, BEHIND, AROUND_TOOLS = "before", "behind", "around_tools"
"""Hooks: before a speaker's reply, after it, and before and after its tools."""

FIXED = "It is always this that is said."
"""The text of a speaker with a fixed text."""


def token(by: str | None = None) -> DoneToken:
    return DoneToken(token=DONE, by=by)


def ends(few: int, many: int, *, tools: bool) -> list[End | None]:
    """Return all ends that can be drawn; `many` limits are always reached, `few` limits may be."""
    won, bell = Predicate(name="won"), ToolCalled(tool="bell")
    found: list[End | None] = [
        None,
        token(),
        token() | won,
        token() & won,
        token("Ann") & token("Bob"),
        token() & MaxMessages(limit=few),
        won & MaxMessages(limit=few),
        token() | MaxMessages(limit=many),
        token() | MaxCalls(limit=many),
        token() & MaxCalls(limit=many),
        StopRequested() & MaxMessages(limit=few),
        (token() & MaxCalls(limit=few)) | (won & StopRequested()) | MaxCalls(limit=3 * many),
    ]
    return [*found, token() | bell, bell & won, bell & MaxCalls(limit=4)] if tools else found


_MODEL: list[Any] = ["model"]

REPLIES: list[list[Any]] = [
    *[_MODEL] * 3,
    [{"kind": "function", "name": "drawn"}, "model"],
    [{"kind": "function", "name": "drawn"}, {"kind": "text", "text": FIXED}],
]

HOOKS: list[list[str]] = [
    *[[]] * 3,
    [BEFORE],
    [BEHIND],
    [AROUND_TOOLS],
    [BEFORE, BEHIND, AROUND_TOOLS],
]


def _shape(draw: st.DrawFn) -> dict[str, Any]:
    """Draw the sources of a speaker's replies, its tools and its hooks."""
    replies = draw(st.sampled_from(REPLIES))
    may_call = "model" in replies and draw(st.booleans())
    return {
        "replies": replies,
        "tools": ["bell", "book"] if may_call else [],
        "return_direct": may_call and draw(st.sampled_from((False, False, True))),
        "hooks": draw(st.sampled_from(HOOKS)),
    }


TOKENS_OF_TOOLS = 300
"""Tokens that the tools of these speakers need, rounded up."""
TOKENS_OF_HANDING_OVER = 160
"""Tokens that the handoff tool needs, rounded up."""


def with_contexts(draw: st.DrawFn, conversation: Conversation) -> Conversation:
    """Return the same conversation, with a history policy and a small limit for each speaker."""
    data = conversation.stored()
    for number, speaker in enumerate(conversation.speakers):
        kind = draw(st.sampled_from(["all", "last", "tokens", "summary", "summary"]))
        context: dict[str, Any] = {"kind": kind}
        if kind == "last":
            context["limit"] = draw(st.integers(1, 8))
        if kind in ("tokens", "summary"):
            if kind == "summary":
                context["words"] = draw(st.integers(1, 12))
            # The least limit of a policy can only be computed for a speaker that has the policy.
            given = Conversation.model_validate(
                data
                | {
                    "speakers": [
                        one | ({"context": context | {"limit": 9999}} if place == number else {})
                        for place, one in enumerate(data["speakers"])
                    ]
                }
            )
            least = least_limit(given, given.speaker(speaker.name))
            least += TOKENS_OF_TOOLS if speaker.tools else 0
            least += TOKENS_OF_HANDING_OVER if has_hand_off_tool(given, speaker) else 0
            context["limit"] = least + draw(st.integers(0, 120))
        data["speakers"][number]["context"] = context
    return Conversation.model_validate(data)


@st.composite
def talks(draw: st.DrawFn, *, shaped: bool, most: int = 4) -> Conversation:
    """Draw a conversation of two to four; `shaped` adds features to its speakers."""
    names = NAMES[: draw(st.integers(2, most))]
    mode = draw(st.sampled_from(EndChatMode))
    judge: dict[str, Any] = draw(
        st.sampled_from(
            [
                {"form": "structured"},
                {"form": "two_questions"},
                {"kind": "separate", "criteria": ["They agree."], "form": "structured"},
                {"kind": "separate", "criteria": ["They agree."], "form": "lines"},
            ]
        )
    )
    needs_stopper = mode is not EndChatMode.MAX_ITERATIONS_ONLY and "kind" not in judge
    stoppers = draw(st.lists(st.sampled_from(names), min_size=int(needs_stopper), unique=True))
    secretive = draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
    answers = draw(st.booleans())
    limit = st.sampled_from((2, 3, 0))
    shapes = {name: _shape(draw) if shaped else {} for name in names}
    tools = any(shape.get("tools") for shape in shapes.values())
    few, many = draw(st.integers(1, 2)), draw(st.integers(2, 9))
    when = draw(st.sampled_from(ends(few, many, tools=tools)))
    conversation = Conversation.model_validate(
        {
            "task": "Plan.",
            "speakers": [
                {
                    "name": name,
                    "task": f"{name}'s.",
                    "checks_completion": name in stoppers,
                    "keep_self_reflection": draw(st.booleans()),
                    "private_opening": {"prompt": f"Choose, {name}."}
                    if name in secretive
                    else None,
                    **shapes[name],
                }
                for name in names
            ],
            "turn_order": draw(
                st.sampled_from(
                    [
                        {"kind": "round_robin"},
                        {"kind": "round_robin"},
                        {"kind": "function", "name": "drawn"},
                        {"kind": "handoff"},
                        {"kind": "handoff"},
                        {"kind": "moderator"},
                        {"kind": "moderator", "form": "word"},
                    ]
                )
            ),
            "opening": {
                "answers": answers,
                "reconcile": answers and draw(st.booleans()),
                "first_speaker": draw(st.sampled_from((None, *names))),
            },
            "end_chat": {
                "mode": mode,
                "max_iterations": draw(st.sampled_from((3, 2, 1))),
                "when": when,
                "guards": {
                    guard: draw(limit)
                    for guard in (
                        "blank_replies",
                        "echo",
                        "farewells",
                        "role_flips",
                        "unreadable_verdicts",
                    )
                }
                # A separate plain counter checks the guards against repetition.
                | {"standstill": 0, "same_replies": 0, "same_tool_calls": 0},
            },
            "judge": judge,
            "max_tool_rounds": draw(st.integers(1, 3)),
            "max_call_errors": draw(st.sampled_from((5, 2, 1))),
            "max_tool_errors": draw(st.sampled_from((5, 2, 1))),
        }
    )
    return with_contexts(draw, conversation) if shaped else conversation


PEOPLE = ("Ann Lee", "Bob", "Cid")


@st.composite
def long_talks(draw: st.DrawFn, *, policies: bool = True) -> Conversation:
    """Draw a long conversation of two or three speakers, each with its own policy."""
    names = PEOPLE[: draw(st.integers(2, 3))]
    answers = draw(st.booleans())
    has_tools = draw(st.booleans())
    secret = {"prompt": "Make up a secret."}
    judge: dict[str, Any] = draw(
        st.sampled_from(
            [
                {"form": "structured"},
                {"form": "two_questions"},
                {"kind": "separate", "criteria": ["They agree."]},
                {"kind": "separate", "criteria": ["They agree."], "form": "lines"},
            ]
        )
    )
    orders = [{"kind": "round_robin"}, {"kind": "moderator"}, {"kind": "function", "name": "drawn"}]
    orders += [{"kind": "handoff"}]
    off = (
        "blank_replies",
        "same_replies",
        "echo",
        "farewells",
        "standstill",
        "role_flips",
        "same_tool_calls",
    )
    conversation = Conversation.model_validate(
        {
            "task": "Talk.",
            "speakers": [
                {
                    "name": name,
                    "task": f"{name}'s.",
                    "checks_completion": True,
                    "keep_self_reflection": draw(st.booleans()),
                    "private_opening": draw(st.sampled_from((None, secret))),
                    "replies": draw(
                        st.sampled_from(
                            (["model"], [{"kind": "function", "name": "drawn"}, "model"])
                        )
                    ),
                    "tools": ["bell", "book"] if has_tools else [],
                    "hooks": draw(st.sampled_from(([], [BEHIND]))),
                    "labels": draw(st.sampled_from((None, True, False))),
                }
                for name in names
            ],
            "turn_order": draw(st.sampled_from(orders)),
            "opening": {"answers": answers, "reconcile": answers and draw(st.booleans())},
            "end_chat": {
                "mode": draw(st.sampled_from(("max_iterations_only", "all_task_must_complete"))),
                "max_iterations": draw(st.integers(3, 8)),
                "guards": dict.fromkeys((*off, "unreadable_verdicts"), 0),
            },
            "judge": judge,
            "max_tool_rounds": 1,
        }
    )
    return with_contexts(draw, conversation) if policies else conversation
