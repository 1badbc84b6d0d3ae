"""R19: no message and no verdict ends a conversation before another speaker has spoken."""

from typing import Any
from uuid import uuid4

import pytest

from duologue.graphs import Result, Session, converse, load_conversation, stream, user_proxy
from duologue.graphs.events import MessageSaid, MessageToken
from duologue.nodes.testing import Line, Reply, ScriptedChatModel
from support.log import Flaw, fields_of, kind_of
from support.prompts import PROMPTS, fill
from support.results import outcome_of, reason_of
from support.shape_help import play as play_script
from support.tables import each_row

DEAL = {"kind": "done_token", "token": "DEAL"}
JUDGE = {"kind": "separate", "criteria": ["They agree."], "form": "lines"}
FIRST = "end_chat_after_first_completion"


def talk(*names: str, **fields: Any) -> dict[str, Any]:
    """Return a conversation of two rounds that a done token ends."""
    end_chat = {"when": DEAL, "max_iterations": 2} | fields.pop("end_chat", {})
    speakers = [{"name": name} for name in names or ("Buyer", "Seller")]
    return {"task": "Agree.", "speakers": speakers, "end_chat": end_chat} | fields


def play(spec: dict[str, Any], *script: Line, **options: Any) -> tuple[Result, ScriptedChatModel]:
    return play_script(spec, script, **options)


def ended(result: Result) -> tuple[str, list[str]]:
    return reason_of(result), [text for _, text in result.transcript]


def flaws(result: Result) -> list[Flaw | None]:
    return [fields_of(one).flaw for one in result.messages if kind_of(one) == "draft"]


@each_row("a_first_message_that_says_a_done_token_is_asked_for_again", "token", "said")
def test_a_first_message_that_says_a_done_token_is_asked_for_again(token: str, said: str) -> None:
    end_chat = {"when": {"kind": "done_token", "token": token}}
    result, model = play(talk(end_chat=end_chat), said, "I offer 4,000.", "Fine.", token)
    assert ended(result) == ("done_token", ["I offer 4,000.", "Fine.", token])
    assert flaws(result) == [Flaw.UNANSWERED]
    assert outcome_of(result).warnings == ()
    problem = fill(PROMPTS["premature_end"], token=token)
    assert model.calls[1].messages[-1].text == fill(PROMPTS["rewrite_reply"], problem=problem)
    assert all(one.kind.value != "rejected" for one in result.why())


def test_what_a_speaker_makes_up_alone_is_no_answer() -> None:
    secret = {"name": "Seller", "private_opening": {"prompt": "Choose a price."}}
    spec = talk(speakers=[{"name": "Buyer"}, secret])
    result, _ = play(spec, "DEAL", "DEAL", "DEAL")
    # The first of them is the Seller's own.
    assert flaws(result) == [Flaw.UNANSWERED]
    assert outcome_of(result).warnings != ()


def test_a_person_ends_it_at_once_and_so_does_a_proxy() -> None:
    people = [{"name": "You", "replies": ["human"]}, {"name": "Bob"}]
    result, _ = play(talk(speakers=people), answer=lambda question: "DEAL")
    assert ended(result) == ("done_token", ["DEAL"])
    assert outcome_of(result).warnings == ()
    spec = user_proxy("Go on.\nDEAL", human_input_mode="NEVER", code=False, end_chat={"when": DEAL})
    result = converse(spec, model=ScriptedChatModel(script=[]), store="memory:")
    assert ended(result) == ("done_token", ["Go on.\nDEAL"])
    assert result.outcome is not None
    assert outcome_of(result).warnings == ()


def test_a_function_that_says_it_first_cannot_be_asked_again() -> None:
    people = [{"name": "Bot", "replies": [{"kind": "function", "name": "f"}]}, {"name": "Bob"}]
    result, _ = play(talk(speakers=people), functions={"f": lambda heard: "DEAL"})
    assert ended(result) == ("done_token", ["DEAL"])
    assert outcome_of(result).warnings == ("Bot said DEAL before another speaker had spoken",)


def test_a_kill_between_the_tries_asks_for_the_second_alone() -> None:
    store = f"memory:{uuid4().hex}"
    with pytest.raises(RuntimeError, match="killed"):
        play(talk(), "DEAL", RuntimeError("killed"), store=store, session="s")
    model = ScriptedChatModel(script=["4,000.", "DEAL"])
    assert ended(Session("s", store=store).resume(model=model)) == (
        "done_token",
        ["4,000.", "DEAL"],
    )
    fresh = Session("s", store=store).fork(at="m0001", end_chat={"allow_unanswered_end": True}).id
    model = ScriptedChatModel(script=["DEAL"])
    assert ended(Session(fresh, store=store).resume(model=model)) == ("done_token", ["DEAL"])


def test_a_conversation_that_goes_on_after_its_end_has_heard_the_others() -> None:
    store = f"memory:{uuid4().hex}"
    play(talk(end_chat={"max_iterations": 1}), "Hi.", "Hello.", store=store, session="s")
    new = Session("s", store=store).fork(end_chat={"max_iterations": 2}).id
    result = Session(new, store=store).resume(model=ScriptedChatModel(script=["DEAL"]))
    assert ended(result) == ("done_token", ["Hi.", "Hello.", "DEAL"])


@pytest.mark.parametrize("size", [1, 3, 100])
def test_no_piece_of_the_token_is_told(size: int) -> None:
    said = "I take it.\nDEAL"
    chunks = tuple(said[at : at + size] for at in range(0, len(said), size))
    script: list[Line] = [Reply(text=said, chunks=chunks), "4,000.", "Fine.", "DEAL"]
    model = ScriptedChatModel(script=script)
    events = [*stream(load_conversation(talk()), model=model, store="memory:")]
    assert "DEAL" not in "".join(one.text for one in events if isinstance(one, MessageToken))
    assert [one.text for one in events if isinstance(one, MessageSaid)] == [
        "4,000.",
        "Fine.",
        "DEAL",
    ]


# A separate judge
