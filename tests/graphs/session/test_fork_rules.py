"""Forks with other rules: the next speaker, the instructions, and the ends that still apply."""

import asyncio
from typing import Any

import pytest

from duologue import (
    DoneToken,
    EndChat,
    EndChatMode,
    Guards,
    MaxMessages,
    Moderator,
    Reason,
    Result,
    SeparateJudge,
    Session,
    SpecError,
    aconverse,
    alist_sessions,
    converse,
    list_sessions,
)
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from support.fork_help import NO, YES, go_on, plain, run, timeless, told, with_verdicts
from support.log import fields_of, kind_of, of_kind, place_of, without_ids
from support.tables import check_rows, read_rows

TRIO = [{"name": "Ann"}, {"name": "Ben"}, {"name": "Cat"}]
STOPPERS = [{"name": "Ann", "checks_completion": True}, {"name": "Ben", "checks_completion": True}]
MET: dict[str, Any] = {"criterion_1": "met"}
NOT_MET: dict[str, Any] = {"criterion_1": "not_met"}
MAX_COST: dict[str, Any] = {"kind": "max_cost"}
PRICES = {"ScriptedChatModel": {"input": 1e6, "output": 1e6}}
BEGIN = "Please begin."

FIRST = EndChatMode.END_CHAT_AFTER_FIRST_COMPLETION
ONE = EndChatMode.ONE_LAST_CHAT_AFTER_FIRST_COMPLETION
GROUP = EndChatMode.ONE_LAST_GROUP_CHAT_AFTER_FIRST_COMPLETION
ALL = EndChatMode.ALL_TASK_MUST_COMPLETE


def turn(name: str) -> str:
    return f"{name}, it is your turn."


def reason(result: Result) -> Reason:
    return timeless(result.outcome).reason


def test_a_finished_talk_of_three_goes_on_with_a_higher_cap_and_each_is_told_its_turn_once(
    store: str,
) -> None:
    first, rest = ["A1", "B1", "C1"], ["A2", "B2", "C2"]
    one = run(plain(speakers=TRIO, end_chat={"max_iterations": 1}), first, store=store).session
    new = one.fork(end_chat={"max_iterations": 2})
    assert told(new.state(), "Ann") == [BEGIN, turn("Ann")]
    ended = go_on(new, rest)
    assert told(ended, "Ann") == [BEGIN, turn("Ann")]
    assert told(ended, "Ben") == [turn("Ben")] * 2
    assert told(ended, "Cat") == [turn("Cat")] * 2
    whole = run(plain(speakers=TRIO), [*first, *rest], store=store)
    assert without_ids(ended.messages) == without_ids(whole.messages)


ASKED_FIRST: dict[str, tuple[dict[str, Any], list[Line], str]] = {
    "order": ({"turn_order": {"kind": "moderator"}}, [{"next_speaker": "Cat"}], "Cat"),
    "speaker": (
        {"end_chat": {"mode": ALL}, "speakers": {"Ann": {"checks_completion": True}}},
        [NO],
        "Ben",
    ),
    "separate": (
        {
            "judge": {"kind": "separate", "criteria": ["They agree."]},
            "end_chat": {"mode": FIRST, "allow_unanswered_end": True},
        },
        [NOT_MET],
        "Ben",
    ),
}
"""Changes that make the fork ask another speaker before the turn after Ann's, and the next one."""


@pytest.mark.parametrize(("changes", "asked", "following"), ASKED_FIRST.values(), ids=ASKED_FIRST)
def test_nobody_is_told_of_a_turn_before_it_is_asked_whose_it_is(
    changes: dict[str, Any], asked: list[Line], following: str, store: str
) -> None:
    conversation = plain(speakers=TRIO, end_chat={"max_iterations": 1})
    one = run(conversation, ["A1", "B1", "C1"], store=store).session
    new = one.fork(at="m0001", **changes)
    assert [message.text for message in new.state().messages] == [BEGIN, "A1"]
    model = ScriptedChatModel(script=[*asked, RuntimeError("enough")])
    with pytest.raises(RuntimeError, match="enough"):
        new.resume(model=model)
    turns = [one.text for one in new.state().messages if "it is your turn" in one.text]
    assert turns == [turn(following)]


def test_a_turn_that_new_rules_end_is_not_told(store: str) -> None:
    one = run(plain(speakers=TRIO), list("ABCDEF"), store=store).session
    ended = go_on(one.fork(at="m0001", end_chat={"when": MaxMessages(limit=1)}), [])
    assert reason(ended) is Reason.MAX_MESSAGES
    assert [one.text for one in ended.messages] == [BEGIN, "A"]


def test_an_order_that_is_chosen_becomes_a_round_robin_and_back(store: str) -> None:
    end_chat = {"max_iterations": 2, "when": MaxMessages(limit=2)}
    conversation = plain(speakers=TRIO, turn_order={"kind": "moderator"}, end_chat=end_chat)
    one = run(conversation, ["A1", {"next_speaker": "Cat"}, "C1"], store=store).session
    robin = one.fork(turn_order={"kind": "round_robin"}, end_chat={"when": None})
    ended = go_on(robin, ["A2", "B2", "C2", "A3"])
    assert [name for name, _ in ended.transcript] == ["Ann", "Cat", "Ann", "Ben", "Cat", "Ann"]
    back = robin.fork(at="m0004", turn_order=Moderator(form="word"))
    ended = go_on(back, ["Ben", "B", "Ann", "A", "cat", "C", "Ben", "B"])
    assert [name for name, _ in ended.transcript] == ["Ann", "Cat", "Ben", "Ann", "Cat", "Ben"]


# Modes, in the middle of last words and after them.


@pytest.mark.parametrize("mode", EndChatMode)
@pytest.mark.parametrize("before", [FIRST, ONE, GROUP, ALL])
def test_a_fork_after_a_completion_owes_what_the_new_mode_promises(
    before: EndChatMode, mode: EndChatMode, store: str
) -> None:
    # The messages after Ben completes its task in the first round of two.
    rest: dict[EndChatMode, list[Line]] = {
        **{FIRST: [], ONE: ["A2"], GROUP: ["A2", "B2"], ALL: ["A2", YES]},
        EndChatMode.MAX_ITERATIONS_ONLY: ["A2", "B2"],
    }
    conversation = plain(speakers=STOPPERS, end_chat={"mode": before, "max_iterations": 2})
    one = run(conversation, ["A1", NO, "B1", YES, *rest[before]], store=store).session
    ended = go_on(one.fork(at="m0006", end_chat={"mode": mode}), rest[mode])
    only_cap = mode is EndChatMode.MAX_ITERATIONS_ONLY
    assert reason(ended) is (Reason.MAX_ITERATIONS if only_cap else Reason.COMPLETED)


def test_last_words_are_not_promised_twice_nor_spoken_to_oneself(store: str) -> None:
    def check(number: int, row: dict[str, Any]) -> None:
        last = ["A, last", "B, last"] if row["before"] == GROUP.value else ["A, last"]
        end_chat = {"mode": row["before"], "max_iterations": 2}
        conversation = plain(speakers=STOPPERS, end_chat=end_chat)
        script: list[Line] = ["A1", NO, "B1", YES, *last]
        whole = run(conversation, script, session=f"s{number}", store=store)
        at = place_of(whole.messages[6 + row["words"]])
        new = whole.session.fork(at=at, end_chat={"mode": row["mode"]})
        model = ScriptedChatModel(script=with_verdicts(row["lines"]))
        ended = new.resume(model=model)
        assert (reason(ended).value, len(model.calls)) == (row["why"], len(row["lines"]))
        # No speaker had to answer itself.
        assert all(call.prompt[-1]["role"] != "assistant" for call in model.calls)

    check_rows(enumerate(read_rows(__file__, "last_words")), check)


@pytest.mark.parametrize("order", ["moderator", "round_robin"])
def test_a_completion_just_found_owes_last_words_though_the_next_was_chosen_already(
    order: str, store: str
) -> None:
    conversation = plain(
        speakers=[{**one, "checks_completion": True} for one in TRIO],
        turn_order={"kind": order},
        end_chat={"mode": ALL},
    )
    choice: list[Line] = [{"next_speaker": "Cat"}] if order == "moderator" else []
    model = ScriptedChatModel(script=["A1", YES, *choice, RuntimeError("enough")])
    with pytest.raises(RuntimeError, match="enough"):
        converse(conversation, session="one", model=model, store=store)
    new = Session("one", store=store).fork(end_chat={"mode": GROUP})
    ended = go_on(new, ["B, last", "C, last", "A, last"])
    assert reason(ended) is Reason.COMPLETED
    assert [name for name, _ in ended.transcript] == ["Ann", "Ben", "Cat", "Ann"]
    turns = [one.text for one in ended.messages if "it is your turn" in one.text]
    assert turns == [turn("Ben"), turn("Cat"), turn("Ann")]


# Completed speakers are those with a verdict.


@pytest.mark.parametrize("mode", [FIRST, ONE, GROUP])
def test_what_is_now_another_task_is_not_complete(mode: EndChatMode, store: str) -> None:
    last: dict[EndChatMode, list[Line]] = {FIRST: [], ONE: ["A2"], GROUP: ["A2", "B2"]}
    conversation = plain(end_chat={"mode": mode, "max_iterations": 2})
    one = run(conversation, ["A1", "B1", YES, *last[mode]], store=store).session

    def check(row: dict[str, Any]) -> None:
        ended = one.fork(at="m0004", **row["changes"]).resume(model=answering())
        assert (reason(ended) is Reason.MAX_ITERATIONS) is row["asked"]
        verdicts = [one for one in ended.messages if fields_of(one).verdict is not None]
        assert (len(verdicts) > 1) is row["asked"]
        assert timeless(ended.outcome).completed == (() if row["asked"] else ("Ben",))

    check_rows([(row,) for row in read_rows(__file__, "judged_again")], check)


def answering() -> ScriptedChatModel:
    """Return a model whose verdicts find nothing complete."""

    def script(prompt: list[dict[str, Any]]) -> Line:
        last = str(prompt[-1]["content"])
        if "criterion" in last:
            return NOT_MET
        return NO if "Is your task complete?" in last else f"Line {len(prompt)}."

    return ScriptedChatModel(script=script)


def test_more_criteria_are_judged_anew_and_the_same_are_not(store: str) -> None:
    judge = {"kind": "separate", "criteria": ["They agree."]}
    conversation = plain(judge=judge, end_chat={"mode": FIRST})
    ended = run(conversation, ["A1", "B1", MET], store=store)
    same = ended.session.fork(judge={"prompt": "You are strict.", "form": "lines"})
    assert go_on(same, []).outcome == ended.outcome
    more = SeparateJudge(criteria=("They agree.", "They are kind."))
    both = {"criterion_1": "met", "criterion_2": "met"}
    again = go_on(ended.session.fork(judge=more), ["A2", "B2", both])
    for one in (ended, again):
        assert timeless(one.outcome).explanations == ("the judge found all criteria met",)


# Other ends and guards.

WHEN: list[tuple[object, list[Line], Reason]] = [
    ({"kind": "max_messages", "limit": 3}, ["A2"], Reason.MAX_MESSAGES),
    ({"kind": "done_token", "token": "B1"}, [], Reason.DONE_TOKEN),
    ({"kind": "done_token", "token": "B1", "by": "Ann"}, ["A2", "B2"], Reason.MAX_ITERATIONS),
    ({"token": "X"}, ["X"], Reason.DONE_TOKEN),
    ({"by": "Ben"}, ["STOP", "STOP"], Reason.DONE_TOKEN),
    ([{"kind": "max_calls", "limit": 3}], ["A2"], Reason.MAX_CALLS),
    (None, ["STOP", "B2"], Reason.MAX_ITERATIONS),
    (DoneToken(token="X") | MaxMessages(limit=3), ["X"], Reason.DONE_TOKEN),  # noqa: S106
    (DoneToken(token="X") | MaxMessages(limit=3), ["Y"], Reason.MAX_MESSAGES),  # noqa: S106
    (DoneToken(token="X") & MaxMessages(limit=3), ["X"], Reason.DONE_TOKEN),  # noqa: S106
]


@pytest.mark.part(3)
@pytest.mark.parametrize(("when", "lines", "why"), WHEN, ids=lambda value: str(value)[:60])
def test_other_ends_may_be_of_another_kind_and_given_as_objects(
    when: object, lines: list[Line], why: Reason, store: str
) -> None:
    end_chat = {"max_iterations": 2, "when": {"kind": "done_token", "token": "STOP"}}
    one = run(plain(end_chat=end_chat), ["A1", "B1", "STOP"], store=store).session
    assert reason(go_on(one.fork(at="m0002", end_chat={"when": when}), lines)) is why
    assert one.state().conversation == plain(end_chat=end_chat)


def test_how_it_ends_may_be_given_whole(store: str) -> None:
    one = run(
        plain(end_chat={"max_iterations": 1, "mode": FIRST}),
        ["A1", "B1", NO],
        store=store,
    ).session
    new = one.fork(end_chat=EndChat(max_iterations=2))
    assert new.state().conversation.end_chat == EndChat(max_iterations=2)
    assert reason(go_on(new, ["A2", "B2"])) is Reason.MAX_ITERATIONS


def test_what_ended_it_may_be_taken_away_and_else_ends_the_fork_too(store: str) -> None:
    end_chat = {"when": {"kind": "predicate", "name": "enough"}, "max_iterations": 2}
    ended = run(plain(end_chat=end_chat), ["A1", "Enough."], store=store)
    assert reason(ended) is Reason.PREDICATE
    for changes in ({}, {"end_chat": {"max_iterations": 3}}):
        same = go_on(ended.session.fork(**changes), [])  # type: ignore[arg-type]
        assert timeless(same.outcome) == timeless(ended.outcome)
    without = ended.session.fork(end_chat={"when": None})
    assert reason(go_on(without, ["A2", "B2"])) is Reason.MAX_ITERATIONS


def test_what_a_guard_stopped_goes_on_with_the_guard_off(store: str) -> None:
    def check(row: dict[str, Any]) -> None:
        name, guards = row["name"], row["guards"]
        conversation = plain(end_chat={"max_iterations": 2, "guards": guards})
        ended = run(conversation, row["lines"], session=name, store=store)
        assert reason(ended).value == name
        # Without a change the fork has ended, too.
        same = go_on(ended.session.fork(), [])
        assert timeless(same.outcome) == timeless(ended.outcome)
        for off in ({name: 0}, Guards.model_validate(guards | {name: 0})):
            new = ended.session.fork(end_chat={"guards": off})
            assert reason(go_on(new, row["rest"])) is Reason.MAX_ITERATIONS

    check_rows([(row,) for row in read_rows(__file__, "guards")], check)


def test_calls_that_a_guard_did_not_run_are_run_with_the_guard_off(store: str) -> None:
    calls: list[Line] = [
        Reply(tool_calls=[ScriptedToolCall(name="weather", args={"day": "Monday"}, id=str(n))])
        # The second reply is requested once more.
        for n in range(3)
    ]
    conversation = plain(
        speakers=[{"name": "Ann", "tools": ["weather"]}, {"name": "Ben"}],
        end_chat={"max_iterations": 1, "guards": {"same_tool_calls": 2}},
    )
    ended = run(conversation, calls, store=store)
    assert reason(ended) is Reason.SAME_TOOL_CALLS
    assert kind_of(ended.messages[-1]) == "tool_calls"
    new = ended.session.fork(end_chat={"guards": {"same_tool_calls": 0}})
    again = go_on(new, ["Sun.", "Good."])
    assert reason(again) is Reason.MAX_ITERATIONS
    results = of_kind(again.messages, "tool_result")
    assert [one.text for one in results] == ["Monday: sun"] * 2


def test_unreadable_verdicts_count_on_in_a_fork(store: str) -> None:
    guards = {"unreadable_verdicts": 1}
    conversation = plain(end_chat={"mode": FIRST, "max_iterations": 3, "guards": guards})
    ended = run(conversation, ["A1", "B1", "Hm.", "Hm."], store=store)
    assert reason(ended) is Reason.UNREADABLE_VERDICTS
    new = ended.session.fork(end_chat={"guards": {"unreadable_verdicts": 2}})
    assert reason(go_on(new, ["A2", "B2", "Hm.", "Hm."])) is Reason.UNREADABLE_VERDICTS


@pytest.mark.parametrize("speakers", [2, 3])
async def test_what_was_stopped_from_outside_goes_on_in_a_fork(speakers: int, store: str) -> None:
    """Y20: a fork of a stopped session continues with a cue for the next speaker."""

    class Asked(ScriptedChatModel):
        async def ainvoke(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            if len(self.calls) == 1:
                assert not await Session("one", store=store).astop()
            return await super().ainvoke(*args, **kwargs)

    names = TRIO[:speakers]
    conversation = plain(speakers=names, end_chat={"max_iterations": 1})
    model = Asked(script=["A1", "B1"])
    ended = await aconverse(conversation, session="one", store=store, model=model)
    assert reason(ended) is Reason.STOP_REQUESTED
    new = await ended.session.afork(end_chat={"max_iterations": 2})
    rest = ["C1", "A2", "B2", "C2"] if speakers == 3 else ["A2", "B2"]
    again = await asyncio.to_thread(go_on, new, rest)
    assert reason(again) is Reason.MAX_ITERATIONS
    assert told(again, "Cat") == ([turn("Cat")] * 2 if speakers == 3 else [])
    rows = {row.session: row.stop_requested for row in await alist_sessions(store=store)}
    assert not rows[new.id]


# Values that a fork keeps.


SECRET: dict[str, Any] = {
    "task": "Guess",
    "speakers": [
        {"name": "Ann", "private_opening": {"prompt": "Choose a number."}},
        {"name": "Ben", "private_opening": {"lines": ["You love sevens."]}},
        {"name": "Cat"},
    ],
    "end_chat": {"max_iterations": 1},
}


@pytest.mark.part(2)
@pytest.mark.parametrize("at", [None, "m0002", "m0003", "m0005"])
def test_a_secret_stays_its_owners_in_a_fork(at: str | None, store: str) -> None:
    """Y16: in a fork, only the owner's view and prompts contain a secret."""
    whole = run(plain(**SECRET), ["My number is 7.", "A1", "B1", "C1"], store=store)
    secrets = [one for one in whole.messages if "7" in one.text]
    new = whole.session.fork(at=at, end_chat={"max_iterations": 2})
    model = ScriptedChatModel(script=lambda prompt: f"Line after {len(prompt)}.")
    ended = new.resume(model=model)
    assert [one for one in ended.messages if "7" in one.text] == secrets
    for call in model.calls:
        owner = "You are Ann" in call.messages[0].text
        assert ("number is 7" in str(call.prompt)) is owner
        assert ("love sevens" in str(call.prompt)) is ("You are Ben" in call.messages[0].text)
    for name in ("Ben", "Cat"):
        assert "number is 7" not in str(ended.viewpoint(name))
    assert "love sevens" not in str(ended.viewpoint("Cat"))


def test_what_was_known_before_can_not_change(store: str) -> None:
    one = run(plain(**SECRET), ["7", "A1", "B1", "C1"], store=store).session
    for opening in ({"prompt": "Choose a word."}, {"lines": ["x"]}, None):
        with pytest.raises(
            SpecError, match=r"^speakers\.Ann\.private_opening: can't be changed in"
        ):
            one.fork(speakers={"Ann": {"private_opening": opening}})
    assert len(list_sessions(store=store)) == 1


def test_money_that_was_spent_stays_spent(store: str) -> None:
    end_chat: dict[str, Any] = {"max_iterations": 9, "when": MAX_COST | {"limit": 1}}
    ended = run(plain(prices=PRICES, end_chat=end_chat), ["A1"], store=store)
    spent = timeless(ended.outcome).total.cost
    assert spent is not None
    assert reason(ended) is Reason.MAX_COST
    more = {"when": {"limit": spent + 1}}
    again = go_on(ended.session.fork(end_chat=more), ["B1"])
    assert (reason(again), timeless(again.outcome).total.calls) == (Reason.MAX_COST, 2)
    # The calls of the fork have another price.
    free = {"ScriptedChatModel": {"output": 0, "input": 0.001}}
    cheap = ended.session.fork(prices=free, end_chat={"max_iterations": 1, **more})
    paid = timeless(go_on(cheap, ["B1"]).outcome)
    assert paid.reason is Reason.MAX_ITERATIONS
    assert spent < (paid.total.cost or 0) < spent + 1


def test_a_price_table_may_come_with_the_fork(store: str) -> None:
    one = run(plain(), list("ABCD"), store=store).session
    new = one.fork(at="m0002", prices=PRICES, end_chat={"when": MAX_COST | {"limit": 1}})
    ended = timeless(go_on(new, ["A2"]).outcome)
    assert (ended.reason, ended.total.calls) == (Reason.MAX_COST, 3)
