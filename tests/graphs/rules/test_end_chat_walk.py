"""Every reachable path of the engine has the turns and the end of the published rules.

The walk itself is in `paths`, and the rules are in `onlooker`. For each conversation, the longest
path has no more messages and steps than the bounds of the spec;
`paths.reachable_messages` is its exact number of messages.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Any

import pytest

from duologue.graphs import (
    CodeReply,
    Conversation,
    DoneToken,
    EndChat,
    EndChatMode,
    Guards,
    Handoff,
    HumanReply,
    MaxCalls,
    MaxCost,
    MaxMessages,
    MaxSeconds,
    MaxTokens,
    ModelReply,
    Moderator,
    NoCodeBlock,
    Opening,
    Predicate,
    Price,
    PrivateOpening,
    Reason,
    RunningSummary,
    SeparateJudge,
    Speaker,
    StopRequested,
    TextReply,
    ToolCalled,
    TurnFunction,
)
from oracle.onlooker import Came
from oracle.paths import Choices, Walk, reachable_messages
from oracle.reckoning import TEXTS
from support.cases import part_of, thorough
from support.ends import End, leaves

MODES = list(EndChatMode)
NAMES = ("Ann", "Bob", "Cid", "Dot")


def token(word: str, by: str | None = None) -> DoneToken:
    return DoneToken(token=word, by=by)


DONE = token("DONE")
WON = Predicate(name="won")
BELL = ToolCalled(tool="bell")
CALLS, TOKENS = MaxCalls(limit=9), MaxTokens(limit=900)
COST, SECONDS = MaxCost(limit=9), MaxSeconds(limit=90)
HERS = MaxCalls(limit=9, by="Ann")
JUDGE = SeparateJudge(criteria=("They agree.",))
SUMMED_UP = RunningSummary(limit=9_000)
HELLO = TextReply(text="Hello.", once=True)
SHAPED: dict[str, Any] = {"hooks": True, "summaries": True}
"""Options that add steps before and after a speaker's replies."""
BAD_CALL, BROKEN_TOOL = Came(1, 0, worked=False), Came(0, 1, worked=False)
ERRORS = (BAD_CALL, BROKEN_TOOL)

each_mode = pytest.mark.parametrize(
    "mode",
    [
        pytest.param(MODES[0], id="Y11-max-iterations-only"),
        pytest.param(MODES[1], id="Y12-first-completion"),
        pytest.param(MODES[2], id="Y13-one-last-chat"),
        pytest.param(MODES[3], id="Y14-one-last-group-chat"),
        pytest.param(MODES[4], id="Y15-all-must-complete"),
    ],
)


def spec(
    mode: EndChatMode,
    cap: int = 1,
    count: int = 2,
    stoppers: tuple[str, ...] = NAMES,
    *,
    answers: bool = False,
    first: str | None = None,
    private: tuple[str, ...] = (),
    when: End | None = None,
    guards: Guards | None = None,
    context: RunningSummary | None = None,
    runners: tuple[str, ...] = (),
    people: dict[str, HumanReply] | None = None,
    beginners: tuple[str, ...] = (),
    least: int = 0,
    **others: Any,
) -> Conversation:
    secret = PrivateOpening(prompt="Choose a number.")
    return Conversation(
        task="Plan.",
        speakers=tuple(
            Speaker(
                name=name,
                task=f"{name}'s own.",
                checks_completion=name in stoppers,
                private_opening=secret if name in private else None,
                tools=("bell", "book"),
                context=context or "all",
                replies=(
                    *([HELLO] if name in beginners else []),
                    *([people[name]] if people and name in people else []),
                    *([CodeReply()] if name in runners else []),
                    ModelReply(),
                ),
            )
            for name in NAMES[:count]
        ),
        opening=Opening(answers=answers, first_speaker=first),
        end_chat=EndChat(
            mode=mode,
            max_iterations=cap,
            min_iterations=least,
            when=when,
            guards=guards or Guards(),
        ),
        prices={"m": Price(input=1, output=1)},
        model="m",
        **others,
    )


def stopping(mode: EndChatMode, count: int) -> Iterator[tuple[str, ...]]:
    """Yield every valid set of stoppers."""
    least = 0 if mode is EndChatMode.MAX_ITERATIONS_ONLY else 1
    for size in range(least, count + 1):
        yield from combinations(NAMES[:count], size)


def walked(conversation: Conversation, **choices: Any) -> Walk:
    """Walk all paths, and check that the longest has as many messages as the rules allow."""
    walk = Walk(conversation, Choices(**choices))
    longest, at_the_cap = reachable_messages(conversation)
    assert walk.longest.messages == longest
    # It is shorter than the bound only if no verdict at the cap can add last words.
    assert (longest == walk.most_messages) is at_the_cap
    return walk


@pytest.mark.part(2)
@pytest.mark.parametrize("answers", [False, True], ids=["no-opening", "Y4-Y9-opening"])
@pytest.mark.parametrize("count", [2, 3, 4], ids=lambda count: f"{count}-speakers")
@each_mode
@thorough
def test_every_path_goes_and_ends_as_the_rules_say(
    thorough: bool, mode: EndChatMode, count: int, answers: bool
) -> None:
    """Y2-Y4, Y6, Y9, Y11-Y15, Y20, Z4: every path has the turns and the end of the rules."""
    # The effect of a third round is shown with fewer speakers, who have far fewer paths.
    most = {2: 4, 3: 4, 4: 2} if thorough else {2: 3, 3: 2, 4: 1}
    for cap, stoppers in product(range(1, most[count] + 1), stopping(mode, count)):
        for first in firsts(cap, count):
            conversation = spec(mode, cap, count, stoppers, answers=answers, first=first, when=DONE)
            walk = walked(conversation)
            assert walk.longest.paths > cap * count
            completed = set() if mode is MODES[0] else {Reason.COMPLETED}
            assert walk.reasons == completed | {Reason.DONE_TOKEN, Reason.MAX_ITERATIONS}


def firsts(cap: int, count: int) -> Sequence[str | None]:
    """Return the first speakers to test: all and None, or a single one if there are many paths."""
    if cap == 1:
        return (None, *NAMES[:count])
    return NAMES[:count] if cap == 2 else NAMES[count - 1 : count]


NO_GUARDS = Guards(
    blank_replies=0,
    same_replies=0,
    echo=0,
    farewells=0,
    standstill=0,
    role_flips=0,
    same_tool_calls=0,
    unreadable_verdicts=0,
)

GUARDS = {
    "blank_replies": (1, 2),
    "same_replies": (2, 3),
    "farewells": (1, 4),
    "standstill": (1, 2),
    "role_flips": (1, 2),
    "echo": (1, 2),
}


@pytest.mark.part(1)
@pytest.mark.parametrize("answers", [False, True], ids=["no-opening", "opening"])
@each_mode
@thorough
def test_guards_end_every_path_after_verdicts_and_before_the_caps(
    thorough: bool, mode: EndChatMode, answers: bool
) -> None:
    """Z3: guards wait for promised last words and ignore opening answers."""
    sizes = ((2, 3), (3, 1)) if thorough else ((2, 2),)
    for (guard, limits), (count, cap) in product(GUARDS.items(), sizes):
        text = "same" if guard == "same_replies" else guard.split("_")[0].removesuffix("s")
        text = {"role": "flip", "standstill": "still"}.get(text, text)
        for limit, stoppers in product((0, *limits), (NAMES[1:2], NAMES)):
            guards = NO_GUARDS.model_copy(update={guard: limit})
            conversation = spec(mode, cap, count, stoppers, answers=answers, guards=guards)
            walk = walked(conversation, texts=("plain", text))
            # A speaker has as many turns as there are rounds; farewells are counted over all
            # speakers.
            turns = cap * count if guard in ("farewells", "blank_replies", "standstill") else cap
            assert (Reason(guard) in walk.reasons) is (0 < limit <= turns)


@each_mode
def test_r7_farewells_end_nothing_that_waits_for_a_task_where_a_standstill_would_end_it(
    mode: EndChatMode,
) -> None:
    for standstill, limit in product((0, 2), (1, 3)):
        guards = NO_GUARDS.model_copy(update={"farewells": limit, "standstill": standstill})
        conversation = spec(mode, 3, 2, NAMES[1:2], guards=guards)
        walk = walked(conversation, texts=("plain", "farewell"))
        waits = mode is not MODES[0] and standstill > 0
        assert (Reason.FAREWELLS in walk.reasons) is not waits


@pytest.mark.part(1)
@each_mode
@thorough
def test_guards_together_end_every_path_as_the_rules_say(thorough: bool, mode: EndChatMode) -> None:
    """If several guards are met at once, the outcome has all their reasons in order."""
    guards = Guards(
        blank_replies=2, same_replies=2, farewells=2, role_flips=2, standstill=2, echo=2
    )
    whole = product((False, True), (NAMES[1:2], NAMES))
    for answers, stoppers in whole if thorough else [(True, NAMES[1:2])]:
        conversation = spec(mode, 2, 2, stoppers, answers=answers, guards=guards, when=DONE)
        walk = walked(conversation, texts=TEXTS)
        held = GUARDS.keys() - ({"farewells"} if mode is not MODES[0] else set())
        assert walk.reasons >= {Reason(guard) for guard in held}
        # One message can have only one of these properties, but an earlier role flip stays counted.
        assert any(set(reasons) >= {"role_flips", "blank_replies"} for reasons in walk.ends) is (
            mode is MODES[3]
        )


@pytest.mark.part(1)
@pytest.mark.parametrize("answers", [False, True], ids=["no-opening", "opening"])
@each_mode
@thorough
def test_what_happens_within_a_turn_leaves_it_that_speakers_turn(
    thorough: bool, mode: EndChatMode, answers: bool
) -> None:
    """Y18, Z3, Z7: drafts and tool calls stay in their turn unless they end the conversation."""
    sizes = (((2, 1), 0), ((2, 1), 3), ((2, 2), 2), ((3, 1), 2))
    for (count, cap), limit in sizes if thorough else sizes[:2]:
        conversation = spec(
            mode,
            cap,
            count,
            NAMES[:2],
            answers=answers,
            private=NAMES[1:2],
            when=BELL,
            guards=NO_GUARDS.model_copy(update={"same_tool_calls": limit}),
            max_tool_rounds=3,
            context=SUMMED_UP,
        )
        calls = ("equal", "other", "bell")
        walk = walked(conversation, drafts=True, calls=calls, halves=True, **SHAPED)
        assert (Reason.SAME_TOOL_CALLS in walk.reasons) is (limit > 0)
        assert Reason.TOOL_CALLED in walk.reasons
        # The bound has slack here: no choices and no predicates, which is two steps per turn.
        assert walk.longest.steps <= walk.most_steps - 2 - 2 * walk.most_messages


@pytest.mark.part(2)
@each_mode
@thorough
def test_errors_of_either_kind_end_a_turn_at_once_and_are_no_rounds(
    thorough: bool, mode: EndChatMode
) -> None:
    """Y19, Z7: errors are counted per kind, in a row within a turn; successful calls are kept."""
    beside = (Came(1, 1), Came(2, 0, worked=False))
    whole = [((1, 1), 1, True), ((2, 2), 2, False), ((2, 1), 1, False)]
    for limits, rounds, answers in whole if thorough else whole[:1]:
        conversation = spec(
            mode,
            stoppers=NAMES[:1],
            answers=answers,
            when=BELL | CALLS | DONE,
            guards=NO_GUARDS.model_copy(update={"same_tool_calls": 2}),
            max_tool_rounds=rounds,
            max_call_errors=limits[0],
            max_tool_errors=limits[1],
        )
        happens: dict[str, Any] = {"fails": (*ERRORS, *beside), "direct": True, "hooks": True}
        walk = walked(conversation, calls=("equal", "bell"), **happens)
        assert walk.reasons >= {
            Reason.CALL_ERRORS,
            Reason.TOOL_ERRORS,
            Reason.TOOL_CALLED,
            Reason.MAX_ITERATIONS,
        }
        assert any(ends[:2] == ("max_calls", "call_errors") for ends in walk.ends)
        # Both happen in one round, in which a call that would end the conversation has succeeded.
        both = ("call_errors", "tool_errors", "tool_called")
        assert any(ends[:3] == both for ends in walk.ends) is (limits == (1, 1))


CODE_ENDS: dict[str, End] = {
    "L8-no-code": NoCodeBlock(by="Bob"),
    "A7-token": DONE | CALLS,
    "token-and-no-code": DONE & NoCodeBlock(by="Ann"),
    "predicate-or-no-code": WON | NoCodeBlock(by="Bob"),
    "token-and-messages": (DONE & MaxMessages(limit=2)) | MaxMessages(limit=3),
}


@pytest.mark.parametrize(
    "order", part_of({"in-turn": None, "chosen": TurnFunction(name="f")}, "in-turn")
)
@pytest.mark.parametrize("when", CODE_ENDS.values(), ids=CODE_ENDS)
@each_mode
def test_code_beside_what_ends_it_is_run_first_and_lengthens_nothing(
    mode: EndChatMode, when: End, order: TurnFunction | None
) -> None:
    """A7, L8: the next speaker runs the code; caps, guards and verdicts do not wait for it."""
    others: dict[str, Any] = {} if order is None else {"turn_order": order}
    one_of_three, both = (NAMES[2:3], 3, 1), (NAMES[:2], 2, 2)
    for runners, count, cap in (one_of_three, both if order is None else (NAMES[:1], 2, 1)):
        conversation = spec(
            mode, cap, count, NAMES[1:2], when=when, runners=runners, context=SUMMED_UP, **others
        )
        walk = walked(conversation, code=True, **SHAPED)
        said = {"done_token", "predicate", "no_code_block"}
        assert said & {reason.value for reason in walk.reasons} or when is CODE_ENDS["A7-token"]


@pytest.mark.parametrize("context", [None, SUMMED_UP], ids=["all", "summary"])
@pytest.mark.parametrize(("rounds", "errors"), [(1, (1, 1)), (3, (1, 1)), (2, (2, 1))], ids=str)
@thorough
def test_the_bound_on_steps_is_reached_but_for_the_choice_behind_the_last_turn(
    thorough: bool, rounds: int, errors: tuple[int, int], context: RunningSummary | None
) -> None:
    """The bound is LangGraph's limit, so it may be neither too low nor too high.

    Z7, Y19: a turn has the allowed rounds that succeed, each after the allowed number of errors.
    """
    for count, cap in ((2, 1), (2, 2), (3, 1)) if thorough else ((2, 1),):
        conversation = spec(
            EndChatMode.ALL_TASK_MUST_COMPLETE,
            cap,
            count,
            when=WON,
            context=context,
            guards=NO_GUARDS,
            max_tool_rounds=rounds,
            max_call_errors=errors[0],
            max_tool_errors=errors[1],
            turn_order=TurnFunction(name="f"),
        )
        happens: dict[str, Any] = {"drafts": True, "calls": ("other",), "halves": True}
        happens |= {"fails": ERRORS}
        shaped = SHAPED | {"summaries": context is not None}
        walk = walked(conversation, **happens, **shaped)
        # The task specification needs two more steps.
        assert walk.longest.steps + 2 == walk.most_steps - 1


@pytest.mark.part(1)
@each_mode
@thorough
def test_hard_stops_end_every_path_at_once(thorough: bool, mode: EndChatMode) -> None:
    """Hard stops end a turn and its last words at once; a stop request waits for the turn's end."""
    sizes = ((2, 1), (2, 2)) if thorough else ((2, 1),)
    for (count, cap), answers in product(sizes, (False, True)):
        conversation = spec(
            mode,
            cap,
            count,
            NAMES[-1:] if mode is MODES[0] else NAMES[:2],
            answers=answers,
            private=NAMES[:1],
            when=COST | TOKENS | SECONDS | CALLS,
            max_tool_rounds=1,
            context=SUMMED_UP,
        )
        calls = ("other",)
        walk = walked(conversation, drafts=True, calls=calls, stop=True, halves=True, **SHAPED)
        hard = {"stop_requested", "max_cost", "max_tokens", "max_seconds", "max_calls"}
        assert walk.reasons >= {Reason(reason) for reason in hard}
        # None waits for others, with two exceptions: the limits reached by the very turn that
        # requests the stop, and an answer that hooks have not processed yet.
        assert all(sum(reason in hard for reason in reasons) <= 3 for reasons in walk.ends)


ENDS: dict[str, End] = {
    "any": DONE | WON | BELL,
    "tokens-of-both": token("DONE", by="Ann") & token("DONE", by="Bob"),
    "two-tokens": DONE & token("AGREED"),
    "token-and-predicate": DONE & WON,
    "tool-and-predicate": BELL & WON,
    "token-and-tool": DONE & BELL,
    "two-tools": BELL & ToolCalled(tool="book", by="Bob"),
    "token-and-calls": DONE & CALLS,
    "calls-and-tokens": CALLS & TOKENS,
    "hers-or-all": HERS | (CALLS & MaxTokens(limit=900, by="Bob")),
    "stop-after-tool": StopRequested() & BELL,
    "stop-if-won": StopRequested() & WON,
    "stop-or-token": StopRequested() | DONE,
    "token-after-messages": DONE & MaxMessages(limit=2),
    "calls-after-messages": CALLS & MaxMessages(limit=2),
    "stop-after-messages": (StopRequested() & MaxMessages(limit=2)) | WON,
    "either-and": (DONE | CALLS) & (WON | SECONDS),
    "and-or-and": (DONE & WON) | (CALLS & BELL) | MaxMessages(limit=3),
    "nested": ((DONE & MaxMessages(limit=2)) | CALLS) & WON,
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("when", ENDS.values(), ids=ENDS)
@each_mode
def test_composed_ends_hold_as_their_parts_do(mode: EndChatMode, when: End) -> None:
    """An ``&`` is as strong as its weakest part.

    Earlier messages and calls keep counting, but a predicate must be met now.
    """
    for cap, answers in ((1, True), (2, False)):
        conversation = spec(mode, cap, 2, NAMES[1:2], answers=answers, when=when, max_tool_rounds=1)
        tools = [end.tool for _, end in leaves(when) if isinstance(end, ToolCalled)]
        happens: dict[str, Any] = {"drafts": True, "halves": True, **SHAPED}
        # A second round has the same steps around a reply, but far more paths.
        around = happens if cap == 1 else {}
        walk = walked(conversation, stop=True, calls=tuple(tools), **around)
        assert len(walk.reasons) > 1


@pytest.mark.part(2)
@pytest.mark.parametrize("marked", [(), NAMES[:1], NAMES[1:]], ids=["nobody", "first", "others"])
@each_mode
@thorough
def test_a_separate_judge_completes_all_tasks_at_once(
    thorough: bool, mode: EndChatMode, marked: tuple[str, ...]
) -> None:
    """If no speaker checks completion, the judge is asked after each turn but the first (R19)."""
    sizes = ((2, 1), (2, 2), (3, 2)) if thorough else ((2, 2), (3, 1))
    for (count, cap), limit in product(sizes, (0, 1, 2, 3)):
        if mode is not MODES[0] and not marked:
            assert spec(mode, cap, count, marked, judge=JUDGE).stoppers == NAMES[:count]
        guards = Guards(unreadable_verdicts=limit)
        conversation = spec(mode, cap, count, marked, judge=JUDGE, guards=guards, when=DONE)
        walk = walked(conversation, unreadable=True, stop=True, **SHAPED)
        is_asked = mode is not MODES[0] and (cap > 1 or marked != NAMES[:1])
        assert (Reason.COMPLETED in walk.reasons) is is_asked


ANSWERED = DoneToken(token="DONE", answered=True)  # noqa: S106
ANSWERS: dict[str, End] = {
    "anybody": ANSWERED,
    "one-and-messages": DoneToken(token="DONE", by="Bob", answered=True) | MaxMessages(limit=2),  # noqa: S106
    "and-messages": (ANSWERED & MaxMessages(limit=3)) | CALLS,
    "and-predicate": (ANSWERED & WON) | BELL,
    "and-another": ANSWERED & token("WELL", "Ann"),
}


@pytest.mark.part(4)
@pytest.mark.parametrize(
    "order", part_of({"in-turn": None, "chosen": TurnFunction(name="f")}, "in-turn")
)
@pytest.mark.parametrize("when", part_of(ANSWERS, "anybody"))
@each_mode
@thorough
def test_r20_a_done_token_that_is_answered_ends_it_after_the_answer_even_past_a_cap(
    thorough: bool, mode: EndChatMode, when: End, order: TurnFunction | None
) -> None:
    others: dict[str, Any] = {} if order is None else {"turn_order": order}
    sizes = ((2, 1, 0), (2, 2, 0), (2, 2, 1), (3, 1, 0)) if thorough else ((2, 1, 0),)
    for count, cap, least in sizes:
        conversation = spec(mode, cap, count, NAMES[1:2], when=when, least=least, **others)
        walk = Walk(conversation, Choices(calls=("equal",), stop=order is None))
        past_the_cap = (Reason.DONE_TOKEN, Reason.MAX_ITERATIONS)
        assert past_the_cap in walk.ends or when is not ANSWERED


@pytest.mark.part(2)
@each_mode
def test_unreadable_verdicts_in_a_row_end_it(mode: EndChatMode) -> None:
    """Y9: an unreadable verdict counts as not complete, whoever judges."""
    for (count, cap), limit, stoppers in product(
        ((2, 1), (2, 2), (3, 2)), (0, 1, 2, 3), (NAMES[:1], NAMES)
    ):
        guards = Guards(unreadable_verdicts=limit)
        conversation = spec(mode, cap, count, stoppers, guards=guards)
        walk = walked(conversation, unreadable=True)
        verdicts = 0 if mode is MODES[0] else cap * min(count, len(stoppers))
        assert (Reason.UNREADABLE_VERDICTS in walk.reasons) is (0 < limit <= verdicts)


@pytest.mark.exhaustive
@pytest.mark.parametrize("answers", [False, True], ids=["no-opening", "opening"])
@pytest.mark.parametrize(
    "order",
    [TurnFunction(name="f"), Moderator(), Handoff()],
    ids=["by-function", "by-moderator", "by-handoff"],
)
@each_mode
def test_a_chosen_order_gives_each_turn_but_the_first_and_last_words(
    mode: EndChatMode, order: TurnFunction | Moderator | Handoff, answers: bool
) -> None:
    """Y20: the first turn is the shift owner's; a chosen speaker that checks its task is asked."""
    # Bob begins only in the case without a named speaker, because one case is enough.
    begins = (((), None), ((), "Ann"), (NAMES[:1], "Ann"), (NAMES[:1], "Bob"))
    for (count, cap), (private, first) in product(((2, 2), (3, 1)), begins):
        conversation = spec(
            mode,
            cap,
            count,
            NAMES[1:],
            answers=answers,
            first=first,
            private=private,
            when=DONE | CALLS,
            turn_order=order,
            context=SUMMED_UP,
        )
        walk = walked(conversation, stop=True, **SHAPED)
        assert walk.reasons >= {Reason.DONE_TOKEN, Reason.MAX_CALLS, Reason.MAX_ITERATIONS}


@pytest.mark.part(1)
@pytest.mark.parametrize("order", [None, TurnFunction(name="f")], ids=["in-turn", "chosen"])
@each_mode
@thorough
def test_a_cap_on_messages_counts_all_and_leaves_last_words(
    thorough: bool, mode: EndChatMode, order: TurnFunction | None
) -> None:
    """Y16: opening answers and private messages count; a stopper is asked at the cap, too."""
    others: dict[str, Any] = {} if order is None else {"turn_order": order}
    for count, answers, private, limit in product(
        (2, 3) if thorough else (2,), (False, True), ((), NAMES[:1], NAMES[1:]), range(1, 9)
    ):
        cap = 2 if order is None else 1
        conversation = spec(
            mode,
            cap,
            count,
            NAMES[1:2],
            answers=answers,
            private=private,
            when=DONE | MaxMessages(limit=limit),
            **others,
        )
        walk = walked(conversation)
        before = len(conversation.secretive) + count * answers
        assert (Reason.MAX_MESSAGES in walk.reasons) is (limit <= before + cap * count)
        assert (Reason.MAX_ITERATIONS in walk.reasons) is (limit > before + cap * count)


ALWAYS, TERMINATE, NEVER = (
    pytest.param(mode, id=f"{row}-{mode}")
    for row, mode in (("A4", "ALWAYS"), ("A5", "TERMINATE"), ("A3", "NEVER"))
)
each_input_mode = pytest.mark.parametrize("human_input_mode", [ALWAYS, TERMINATE, NEVER])


def person(mode: str, most: int = 1, **others: Any) -> HumanReply:
    return HumanReply(human_input_mode=mode, max_consecutive_auto_reply=most, **others)


def people_walked(conversation: Conversation, **choices: Any) -> Walk:
    """Walk all paths; a person that is never asked may end before the bounds."""
    if any(one.human and one.human.human_input_mode == "NEVER" for one in conversation.speakers):
        return Walk(conversation, Choices(word=True, **choices))
    return walked(conversation, word=True, **choices)


@pytest.mark.part(2)
@each_input_mode
@each_mode
def test_people_are_asked_and_end_it_as_the_rules_say(
    mode: EndChatMode, human_input_mode: str
) -> None:
    """A3-A6, G6: people end it by the word, a predicate or a cap, in every part."""
    never = human_input_mode == "NEVER"
    for (count, cap), most, who, first in (
        ((2, 3), 0, "Ann", True),
        ((2, 3), 1, "Bob", False),
        ((2, 4), 2, "Ann", True),
        ((3, 2), 0, "Bob", True),
        ((3, 2), 1, "Cid", False),
    ):
        conversation = spec(
            mode,
            cap,
            count,
            NAMES[1:2],
            answers=count == 3,
            first="Ann" if count == 3 else None,
            private=(who,),
            people={who: person(human_input_mode, most)},
            beginners=(who,) if first else (),
        )
        walk = people_walked(conversation)
        wanted = {Reason.TERMINATION, Reason.MAX_ITERATIONS, Reason.QUIT}
        if never:
            wanted = {Reason.TERMINATION, Reason.MAX_CONSECUTIVE_AUTO_REPLY}
        elif human_input_mode == "TERMINATE" and not most:
            wanted |= {Reason.MAX_CONSECUTIVE_AUTO_REPLY}
        assert wanted <= walk.reasons
        assert (Reason.QUIT in walk.reasons) is not never


def test_who_is_never_asked_gives_just_so_many_automatic_replies() -> None:
    """A3: cap 2 allows two automatic replies, 0 none; the first message is no automatic reply."""
    for most, begins, who in product((0, 1, 2), (True, False), NAMES[:2]):
        conversation = spec(
            MODES[0],
            5,
            people={who: person("NEVER", most)},
            beginners=(who,) if begins else (),
        )
        walk = people_walked(conversation)
        # The other speaker answers each of them. The first message of a conversation answers
        # nothing, so it is no automatic reply beyond the cap; any other counts.
        said = most + 1 if begins else max(most, 1) if who == "Ann" else most
        assert walk.longest.messages == 2 * said + (who == "Bob")
        assert walk.reasons == {Reason.TERMINATION, Reason.MAX_CONSECUTIVE_AUTO_REPLY}


@pytest.mark.exhaustive
@pytest.mark.parametrize("order", [None, TurnFunction(name="f")], ids=["in-turn", "chosen"])
@each_mode
def test_several_people_with_predicates_judges_and_code(
    mode: EndChatMode, order: TurnFunction | None
) -> None:
    """A2-A7, Y13, Y14, Y20: people, predicates, judges and code work independently."""
    others: dict[str, Any] = {} if order is None else {"turn_order": order}
    both = {
        "Ann": person("TERMINATE", 1),
        "Bob": person("NEVER", 1, is_termination="enough"),
    }
    three = {
        "Ann": person("ALWAYS", 0, is_termination="enough"),
        "Cid": person("NEVER", 1),
    }
    in_order = order is None
    conversation = spec(mode, 2, 2, NAMES[:1], people=both, beginners=("Ann",), **others)
    walk = people_walked(conversation)
    assert walk.reasons >= {Reason.TERMINATION, Reason.QUIT}
    conversation = spec(
        mode, 2 if in_order else 1, 3, NAMES[1:2], people=three, judge=JUDGE, when=DONE, **others
    )
    walk = people_walked(conversation, stop=in_order)
    assert walk.reasons >= {Reason.TERMINATION, Reason.QUIT, Reason.DONE_TOKEN}
    coding = spec(
        mode,
        2,
        2,
        NAMES[1:2],
        people={"Ann": person("NEVER", 2)},
        runners=("Ann",),
        when=NoCodeBlock(by="Bob") & MaxMessages(limit=3),
        **others,
    )
    walk = people_walked(coding, code=True)
    assert walk.reasons >= {
        Reason.TERMINATION,
        Reason.NO_CODE_BLOCK,
        Reason.MAX_CONSECUTIVE_AUTO_REPLY,
    }
    asked = spec(
        mode,
        people={"Ann": person("TERMINATE"), "Bob": person("ALWAYS")},
        runners=NAMES[:2],
        when=CALLS | COST,
        context=SUMMED_UP,
        **others,
    )
    walk = people_walked(asked, code=True, drafts=True, **SHAPED)
    assert walk.reasons >= {Reason.TERMINATION, Reason.QUIT, Reason.MAX_CALLS}


@pytest.mark.exhaustive
def test_people_add_a_step_to_each_turn_and_one_at_the_end() -> None:
    """A person adds a step to each turn, and a step for leaving at the end."""
    for cap in (1, 2):
        conversation = spec(
            EndChatMode.ALL_TASK_MUST_COMPLETE,
            cap,
            when=WON,
            context=SUMMED_UP,
            guards=NO_GUARDS,
            max_tool_rounds=1,
            max_call_errors=1,
            max_tool_errors=1,
            people={name: person("ALWAYS") for name in NAMES[:2]},
        )
        happens: dict[str, Any] = {"drafts": True, "calls": ("other",), "halves": True}
        walk = people_walked(conversation, fails=ERRORS, **happens, **SHAPED)
        # Two are steps of the task specification, one is the step of leaving, and one per turn is
        # the choice of the next speaker, which does not happen here.
        spare = walk.most_steps - walk.longest.steps
        assert spare == 2 + 1 + walk.most_messages


@pytest.mark.exhaustive
@each_mode
def test_everything_together_ends_every_path_as_the_rules_say(mode: EndChatMode) -> None:
    """Every reason is the first one at some end, with all options switched on.

    The walk over hard stops tests combinations of the four limits.
    """
    guards = Guards(
        blank_replies=2,
        same_replies=2,
        farewells=2,
        role_flips=1,
        echo=1,
        same_tool_calls=2,
        unreadable_verdicts=2,
        standstill=1,
    )
    # Farewells wait for tasks, and in that case a standstill would end the conversation first.
    closing = guards.model_copy(update={"standstill": 0})
    # All four limits at once would triple the walk and reach nothing new.
    one_round = [
        spec(
            mode,
            answers=True,
            private=NAMES[:1],
            when=DONE | WON | BELL | limits,
            guards=guards,
            max_tool_rounds=2,
        )
        for limits in (CALLS | COST, TOKENS | SECONDS)
    ]
    two_rounds = spec(
        mode,
        2,
        stoppers=NAMES[1:2],
        when=DONE | WON | BELL | CALLS | MaxMessages(limit=3),
        guards=closing,
        max_tool_rounds=1,
    )
    with_code = spec(
        mode,
        when=NoCodeBlock(by="Ann") | BELL,
        runners=NAMES[1:2],
        guards=guards,
        max_tool_rounds=1,
        max_call_errors=1,
        max_tool_errors=2,
    )
    with_people = spec(
        mode,
        2,
        2,
        NAMES[1:2],
        people={
            "Ann": person("TERMINATE", is_termination="enough"),
            "Bob": person("NEVER", 1),
        },
        when=DONE,
        guards=closing,
        max_tool_rounds=1,
    )
    errs: dict[str, Any] = {"calls": ("bell",), "fails": ERRORS, "direct": True}
    happens: dict[str, Any] = {
        "drafts": True,
        "calls": ("equal", "bell"),
        "stop": True,
        "unreadable": True,
        "halves": True,
        **SHAPED,
    }
    found = walked(two_rounds, texts=("plain", "same", "farewell"), **happens).reasons
    for conversation in one_round:
        found |= walked(conversation, texts=("plain", "blank", "flip"), **happens).reasons
    found |= walked(
        with_code, texts=("plain", "still"), code=True, stop=True, hooks=True, **errs
    ).reasons
    found |= people_walked(with_people, texts=("plain", "farewell", "echo"), stop=True).reasons
    verdicts = {Reason.COMPLETED, Reason.UNREADABLE_VERDICTS}
    assert found == set(Reason) - (verdicts if mode is MODES[0] else set())
