"""The better of two drafts becomes the reply (R15), and no speaker hears the request (R23)."""

from typing import Any
from uuid import uuid4

import pytest

from duologue.graphs import Result, astream, converse, role_play
from duologue.graphs.events import MessageSaid, MessageStarted, MessageToken, ReplyRejected
from duologue.nodes.testing import Line, ScriptedChatModel
from support.log import Flaw, fields_of, kind_of
from support.prompts import PROMPTS, fill
from support.tables import each_row

ROLE_PLAY = role_play("Pick an exchange", "Lead", "Coder", specify_task=False, max_iterations=1)
ORDER = "Instruction: Choose one of them for us.\nInput: None"
KRAKEN = "I chose Kraken since fees are low."
AGAIN = "Rewrite your message. Reply with the rewritten message only."
ASKED_FOR_WORDS = fill(PROMPTS["rewrite_reply"], problem=PROMPTS["empty_reply"])


def played(*tries: Line, **options: Any) -> Result:
    """Run a solver's model on these drafts, all of which must be used."""
    model = ScriptedChatModel(script=[ORDER, *tries])
    options = {"store": f"memory:{uuid4().hex}"} | options
    result = converse(options.pop("talk", ROLE_PLAY), model=model, **options)
    assert len(model.calls) == 1 + len(tries)
    return result


@each_row("second_tries")
def test_r15_content_is_said_if_the_second_try_has_none(second: str) -> None:
    result = played(KRAKEN, second)
    assert result.last_message("Coder") == f"Solution: {KRAKEN}\nNext request."
    assert fields_of(result.messages[-1]).flaw is None


@each_row("without_request")
def test_r23_others_hear_a_message_without_the_request_for_it(second: str, said: str) -> None:
    result = played("Which?\nInstruction: you choose", second)
    assert [*result.parsed("Coder")[-1].values()] == [said]


@pytest.mark.parametrize(
    "echo",
    [
        f"Instruction: {AGAIN}\nInput: None",
        "Instruction: Rewrite your message.",
        "Instruction: Sure, I'll write your message anew.\nInput: None",
        f"Instruction: {ASKED_FOR_WORDS}\nInput: None",
    ],
)
def test_r23_an_optional_line_hides_no_request(echo: str) -> None:
    model = ScriptedChatModel(script=["", echo, "Solution: So.\nNext request."])
    result = converse(ROLE_PLAY, model=model, store="memory:")
    first = next(one for one in result.messages if kind_of(one) == "speech")
    assert fields_of(first).flaw is Flaw.NO_REPLY
    assert "message" not in first.text


def test_r23_a_request_in_words_of_ones_own_is_seen_too() -> None:
    prompts = {"rewrite_reply": "{problem} Schreibe deine Nachricht bitte noch einmal auf."}
    talk = ROLE_PLAY.model_copy(update={"prompts": {}})
    fields = talk.model_dump(exclude_defaults=True) | {"prompts": prompts}
    result = played(KRAKEN, "Solution: Schreibe deine Nachricht noch einmal auf.", talk=fields)
    assert result.last_message("Coder") == f"Solution: {KRAKEN}\nNext request."


def test_r23_a_message_about_messages_keeps_its_announcement() -> None:
    task = "Answer the customer's letter"
    talk = role_play(task, "Lead", "Coder", specify_task=False, max_iterations=1)
    text = "Here is the rewritten message: Dear Ann, we ship on Monday."
    assert played("", f"Solution: {text}", talk=talk).parsed("Coder") == [{"Solution:": text}]
    # But without other text it does not answer a request for another draft.
    alone = "Solution: Here is the rewritten message:"
    assert played(KRAKEN, alone, talk=talk).parsed("Coder") == [{"Solution:": KRAKEN}]


def test_r15_an_announcement_alone_is_asked_for_again_at_the_first_try() -> None:
    result = played("Solution: Sure, here's a new message:", f"Solution: {KRAKEN}")
    assert result.parsed("Coder") == [{"Solution:": KRAKEN}]
    # A speaker that is asked for a rewrite may announce it.
    asked = "Instruction: Rewrite your last message in plain words.\nInput: None"
    model = ScriptedChatModel(script=[asked, "Solution: Sure, I'll rewrite my message."])
    result = converse(ROLE_PLAY, model=model, store="memory:")
    assert fields_of(result.messages[-1]).flaw is None


def test_r15_marks_alone_are_no_content() -> None:
    talk = ROLE_PLAY.model_copy(
        update={"end_chat": ROLE_PLAY.end_chat.model_copy(update={"max_iterations": 2})}
    )
    script = [ORDER, f"Solution: {KRAKEN}", "Input: None", ORDER, "Solution: So be it then."]
    model = ScriptedChatModel(script=script)
    result = converse(talk, model=model, store="memory:")
    assert [text for name, text in result.transcript if name == "Lead"] == [ORDER, ORDER]


async def test_r23_who_follows_the_stream_sees_no_request() -> None:
    model = ScriptedChatModel(script=[ORDER, KRAKEN, f"Solution: {AGAIN} Bitstamp."])
    events = [event async for event in astream(ROLE_PLAY, model=model, store="memory:")]
    rejected = next(at for at, one in enumerate(events) if isinstance(one, ReplyRejected))
    after = events[rejected + 1 :]
    assert [type(one) for one in after[:3]] == [MessageStarted, MessageToken, MessageSaid]
    said = "Solution: Bitstamp.\nNext request."
    assert (after[1].text, after[2].text) == (said, said)  # type: ignore[union-attr]


def test_r15_the_worse_try_stays_in_the_log_unheard() -> None:
    result = played(KRAKEN, "Solution: Sorry.")
    kinds = [kind_of(one) for one in result.messages[2:]]
    assert kinds == ["draft", "unheard_reply", "speech"]
