"""Done tokens in conversations: their listeners, the end, and sessions begun by older rules."""

from typing import Any

import pytest

from duologue.graphs import (
    Conversation,
    DoneToken,
    EndChat,
    Guards,
    MaxMessages,
    Result,
    SessionError,
    Speaker,
    converse,
    load_conversation,
    role_play,
    stream,
)
from duologue.graphs.events import MessageSaid, MessageToken
from duologue.graphs.text.done_words import Match
from duologue.nodes.testing import Prompt, Reply, ScriptedChatModel
from support.ends import End
from support.results import outcome_of, reason_of
from support.tables import each_row

STOP = "###STOP###"
DEAL = "DEAL"
ANN, BOB = DoneToken(token=STOP, by="Ann"), DoneToken(token=STOP, by="Bob")


def talk(when: End, **end_chat: Any) -> Conversation:
    return Conversation(
        task="Plan.",
        speakers=(Speaker(name="Ann"), Speaker(name="Bob")),
        end_chat=EndChat(when=when, guards=Guards(same_replies=0, farewells=0), **end_chat),
    )


def play(spec: Conversation, *script: str) -> tuple[Result, list[Prompt]]:
    model = ScriptedChatModel(script=[*script])
    return converse(spec, model=model, store="memory:"), [call.prompt for call in model.calls]


def seen(result: Result, name: str) -> list[str]:
    return [f"{message.type}: {message.text}" for message in result.viewpoint(name)[1:]]


@pytest.mark.parametrize("said", [STOP, f"Thank you! {STOP}", f"Thank you.\n**{STOP}**"])
def test_r1_a_token_glued_to_the_last_words_ends_it_and_nobody_answers(said: str) -> None:
    result, prompts = play(talk(ANN), "Hi.", "Hello.", said)
    assert reason_of(result) == "done_token"
    assert outcome_of(result).explanations == ("Ann said the done token",)
    # The log and the transcript keep the message.
    assert result.transcript[-1] == ("Ann", said)
    assert len(prompts) == 3
    assert [cause.message for cause in result.why() if cause.kind == "said"] == [
        outcome_of(result).message
    ]


@pytest.mark.parametrize(
    "said",
    [
        f"Then I will say {STOP}",
        f"It ends like this:\n```\nThanks. {STOP}\n```",
        f'You say: "Thanks. {STOP}"',
    ],
)
def test_r1_a_mentioned_token_ends_nothing_and_is_heard(said: str) -> None:
    result, _ = play(talk(ANN, max_iterations=1), said, "Fine.")
    assert reason_of(result) == "max_iterations"
    assert f"human: {said}" in seen(result, "Bob")


def test_r1_a_token_in_a_thought_ends_nothing() -> None:
    said = f"<think>All is done. {STOP}</think>What else is there?"
    result, _ = play(talk(ANN, max_iterations=1), said, "Fine.")
    assert reason_of(result) == "max_iterations"
    assert seen(result, "Bob")[0] == "human: What else is there?"


def test_r1_others_hear_the_words_before_a_token_and_its_speaker_sees_it() -> None:
    result, prompts = play(talk(ANN & BOB), f"Beans it is. {STOP}", "Really?", "Yes.", STOP)
    assert outcome_of(result).explanations == ("Ann and Bob said the done token",)
    assert prompts[1][-1]["content"] == "Beans it is."
    assert f"ai: Beans it is. {STOP}" in seen(result, "Ann")
    assert "human: Beans it is." in seen(result, "Bob")
    assert "human: (empty message)" in seen(result, "Ann")
    assert f"ai: {STOP}" in seen(result, "Bob")


def test_r1_a_token_of_who_may_not_say_it_ends_nothing_and_is_not_heard() -> None:
    result, _ = play(talk(ANN, max_iterations=1), "Hi.", f"Thank you! {STOP}")
    assert reason_of(result) == "max_iterations"
    assert "human: Thank you! (stop word)" in seen(result, "Ann")


@pytest.mark.parametrize(
    ("match", "said"),
    [("alone", f"Bye.\n{STOP}"), ("last", f"Bye. {STOP}"), ("anywhere", f"I say {STOP} now")],
)
def test_r1_where_a_token_counts_can_be_set(match: Match, said: str) -> None:
    result, _ = play(talk(DoneToken(token=STOP, match=match)), "Hi.", said)
    assert reason_of(result) == "done_token"


DONE = "<CAMEL_TASK_DONE>"


@pytest.mark.part(4)
@each_row("instructions")
@pytest.mark.parametrize("size", [1, 3, 100])
def test_r1_a_token_that_is_the_whole_of_an_instruction_ends_it(
    said: str, heard: str | None, size: int
) -> None:
    spec = role_play(
        "Plan.",
        "Lead",
        "Solver",
        specify_task=False,
        max_iterations=1,
        end_chat={"allow_unanswered_end": True},
    )
    chunks = tuple(said[at : at + size] for at in range(0, len(said), size))
    model = ScriptedChatModel(script=[Reply(text=said, chunks=chunks), "Solution: So it is."])
    events = [*stream(spec, model=model, store="memory:")]
    assert len(model.calls) == (2 if heard is None else 1)
    message = next(one for one in events if isinstance(one, MessageSaid))
    assert message.heard_text == heard
    told = [one.text for one in events if isinstance(one, MessageToken) and one.speaker == "Lead"]
    assert "".join(told) == (message.text if heard is None else heard)


def test_r1_a_role_play_ends_by_a_token_behind_a_sentence() -> None:
    spec = role_play("Plan", "Owner", "Gardener", specify_task=False)
    solved = "Solution: Dug.\nNext request."
    result, _ = play(
        spec, "Instruction: Dig.\nInput: None", solved, "All is done. <CAMEL_TASK_DONE>"
    )
    assert (outcome_of(result).reason, outcome_of(result).by) == ("done_token", "Owner")


@pytest.mark.part(4)
@pytest.mark.parametrize(
    "last",
    ["DEAL", "DEAL.", "DEAL!", "Deal", "**DEAL**.", "(DEAL)", "Buyer: DEAL.", "DEAL 🤝"],
)
def test_r1_a_buyer_that_was_told_to_say_deal_ends_the_sale(last: str) -> None:
    sale = Conversation(
        task="Agree on a price for the boat.",
        speakers=(Speaker(name="Buyer"), Speaker(name="Seller")),
        end_chat=EndChat(when=DoneToken(token=DEAL, by="Buyer") | MaxMessages(limit=12)),
    )
    said = ["3,400?", "3,900, with the oars.", "3,700? Then it is a deal.", "DEAL?", last]
    result, _ = play(sale, *said)
    assert (outcome_of(result).reason, outcome_of(result).by) == ("done_token", "Buyer")
    assert seen(result, "Seller")[-1] == "human: (empty message)"


@each_row("heard")
def test_r1_nothing_odd_is_heard_of_a_message_with_a_token(said: str, heard: str) -> None:
    model = ScriptedChatModel(
        script=["Hi.", "Hello.", Reply(text=said, chunks=tuple(said)), "Really?", "Yes.", STOP]
    )
    events = [*stream(talk(ANN & BOB), model=model, store="memory:")]
    assert model.calls[3].prompt[-1]["content"] == heard
    message = [one for one in events if isinstance(one, MessageSaid)][2]
    told = [one.text for one in events if isinstance(one, MessageToken) and one.speaker == "Ann"]
    assert "".join(told) == f"Hi.{message.heard_text}Yes."
    assert message.heard_text == ("" if heard == "(empty message)" else heard)


# Sessions begun before

OLD: dict[str, Any] = {
    "task": "Plan.",
    "speakers": [{"name": "Ann"}, {"name": "Bob"}],
    "end_chat": {"when": {"kind": "done_token", "token": STOP}},
}


def begun(store: str) -> None:
    """Create a session whose model has failed at its second call."""

    def speak(prompt: Prompt) -> str:
        if len(model.calls) > 1:
            raise ValueError("broken")
        return "Hello."

    model = ScriptedChatModel(script=speak)
    with pytest.raises(ValueError, match="broken"):
        converse(OLD, session="s", store=store, model=model)


def test_what_was_not_set_is_not_compared_and_the_stored_holds() -> None:
    """Fields that were not set are not compared, at any depth: their defaults may have changed."""
    store = "memory:unset"
    begun(store)
    guarded = {"max_iterations": 2, "guards": {"farewells": 9}}
    first = load_conversation({**OLD, "end_chat": {**OLD["end_chat"], **guarded}})
    converse(first, session="t", store=store, model=ScriptedChatModel(script=["A."] * 4))
    same: list[dict[str, Any]] = [{}, {"guards": {"farewells": 9}}, {"max_iterations": 2}]
    for end_chat in same:
        again = converse(
            {**OLD, "end_chat": {**OLD["end_chat"], **end_chat}}, session="t", store=store
        )
        assert again.conversation == first
    others: list[tuple[dict[str, Any], str]] = [
        ({"max_iterations": 5}, "end_chat.max_iterations"),
        ({"guards": {"farewells": 4}}, "end_chat.guards.farewells"),
        ({"when": {"kind": "done_token", "token": "X"}}, "end_chat.when.token"),
        ({"when": {"kind": "done_token", "token": STOP, "match": "last"}}, "end_chat.when.match"),
        ({"when": {"kind": "max_messages", "limit": 9}}, "end_chat.when"),
    ]
    for end_chat, field in others:
        given = {**OLD, "end_chat": {**OLD["end_chat"], **end_chat}}
        with pytest.raises(SessionError, match=f"{field} differs"):
            converse(given, session="t", store=store)
