"""People and the embedded model: the conversation follows its rules with any answers."""

import pytest

from duologue import Conversation, ModelSettings, chat, converse, user_proxy
from duologue.graphs.kinds.chat import AUTO_REPLY
from duologue.graphs.prompts import prompts
from duologue.graphs.text.done_words import says
from support.results import outcome_of, reason_of

pytestmark = pytest.mark.live


def brief(conversation: Conversation) -> Conversation:
    """Return the same conversation, with a few tokens for each answer."""
    model_settings = ModelSettings(max_tokens=16)
    speakers = [
        one.model_copy(update={"model_settings": model_settings}) for one in conversation.speakers
    ]
    return conversation.model_copy(update={"speakers": tuple(speakers)})


@pytest.mark.exhaustive
def test_a3_nobody_is_asked_and_the_rules_end_it() -> None:
    spec = user_proxy(
        "Name a colour.",
        human_input_mode="NEVER",
        max_consecutive_auto_reply=1,
        code=False,
        model="embedded",
        seed=1,
    )
    result = converse(brief(spec), store="memory:", session="never", reset=True)
    assert not result.pending
    answers = [text for name, text in result.transcript if name == "Assistant"]
    automatic = prompts.fill_template(AUTO_REPLY, termination="TERMINATE")
    assert [text for name, text in result.transcript if name == "User"] == [
        "Name a colour.",
        *[automatic] * (len(answers) - 1),
    ]
    is_done = says("TERMINATE", answers[-1], "last")
    assert len(answers) in ((1, 2) if is_done else (2,))
    reason = "termination" if is_done else "max_consecutive_auto_reply"
    assert reason_of(result) == reason


@pytest.mark.exhaustive
def test_g5_g6_a_chat_of_a_question_and_exit() -> None:
    said = iter(["Name a colour.", " EXIT "])
    result = converse(
        brief(chat(model="embedded", seed=1)),
        store="memory:",
        session="chat",
        reset=True,
        answer=lambda question: next(said),
    )
    assert (reason_of(result), outcome_of(result).by) == ("quit", "User")
    (_, asked), (name, answer) = result.transcript
    assert (asked, name) == ("Name a colour.", "Assistant")
    assert answer.strip()
