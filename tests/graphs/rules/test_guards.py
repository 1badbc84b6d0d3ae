"""Whole transcripts through the engine: guards end faulty conversations, and no others (U2)."""

import unicodedata
from collections.abc import Sequence
from uuid import uuid4

import pytest
from langchain_core.messages import BaseMessage

from corpus.reading import ENDLESS, ORDINARY, Transcript
from duologue.graphs import Conversation, LabelledFormat, MaxMessages, Result, converse, role_play
from duologue.nodes.testing import Prompt, ScriptedChatModel
from support.cases import part_of
from support.results import outcome_of, reason_of


def form_of(name: str, transcript: Transcript) -> LabelledFormat | None:
    """Return the labelled format of a role-play's speaker, or None."""
    first = next(text for speaker, text in transcript if speaker == name)
    formats = (speaker.format for speaker in role_play("Plan.", "Lead", "Solver").speakers)
    marked = (one for one in formats if isinstance(one, LabelledFormat))
    return next((one for one in marked if first.startswith(one.lines[0])), None)


def replayed(transcript: Transcript) -> Result:
    """Let models send a transcript line by line, without improvements on request."""
    names = tuple(dict.fromkeys(name for name, _ in transcript))
    conversation = Conversation.model_validate(
        {
            "task": "Talk.",
            "speakers": [{"name": name, "format": form_of(name, transcript)} for name in names],
            "turn_order": {"kind": "function", "name": "as written"},
            "end_chat": {"max_iterations": 99, "when": MaxMessages(limit=len(transcript))},
        }
    )
    heard = [0]

    def order(said: Sequence[BaseMessage], names: Sequence[str]) -> str:
        heard[0] = len(said)
        return transcript[len(said)][0]

    def say(prompt: Prompt) -> str:
        return transcript[heard[0]][1]

    return converse(
        conversation,
        model=ScriptedChatModel(script=say),
        orders={"as written": order},
        store=f"memory:{uuid4().hex}",
    )


# The quick run replays a third of them.
@pytest.mark.part(2)
@pytest.mark.parametrize("transcript", part_of(ORDINARY, *[*ORDINARY][::3]))
def test_no_guard_ends_an_ordinary_conversation(transcript: Transcript) -> None:
    result = replayed(transcript)
    for (speaker, said), (name, text) in zip(result.transcript, transcript, strict=True):
        assert speaker == name
        # A message of a role-play whose labels are incomplete is repaired.
        assert said == text or (form_of(name, transcript) and text in said)
    assert [reason.value for reason in outcome_of(result).reasons] == ["max_messages"]


def test_there_are_ordinary_conversations_of_many_kinds_and_tongues() -> None:
    """R7: there are ordinary conversations of many kinds and languages."""
    assert len(ORDINARY) >= 46
    assert all(6 <= len(said) <= 40 for said in ORDINARY.values())
    letters = {
        unicodedata.name(sign).split()[0]
        for said in ORDINARY.values()
        for _, text in said
        for sign in text
        if sign.isalpha()
    }
    assert {"LATIN", "HIRAGANA", "CJK", "CYRILLIC", "ARABIC", "DEVANAGARI", "HANGUL"} <= letters


IN_PART = [*ENDLESS[::3], *{one.guard: one for one in ENDLESS}.values()]
"""Transcripts of the quick run: a third of all, with at least one for each guard."""


@pytest.mark.part(5)
@pytest.mark.parametrize(
    ("guard", "transcript"),
    [
        pytest.param(
            *(one.guard, one.said),
            id=f"{one.guard}-{one.name}",
            marks=() if one in IN_PART else pytest.mark.exhaustive,
        )
        for one in ENDLESS
    ],
)
def test_a_guard_ends_its_pathological_transcript_at_the_last_message(
    guard: str, transcript: Transcript
) -> None:
    # One line more, to show that the guard ends it and not the cap.
    result = replayed([*transcript, (transcript[0][0], "This would be said if nothing ended it.")])
    assert [reason.value for reason in outcome_of(result).reasons] == [guard]
    assert len(result.transcript) == len(transcript)


PARIS = "The capital of France is Paris, on the river Seine."


@pytest.mark.part(2)
@pytest.mark.parametrize(
    ("asks", "reason", "calls"),
    [
        pytest.param(["What is the capital?"] * 4, "quit", 4, id="asked-the-same"),
        pytest.param(["The capital?", "the CAPITAL"] * 2, "quit", 4, id="asked-alike"),
        # The agent is asked for another reply three times, without success; the person must see
        # that.
        pytest.param(
            ["The capital?", "Where is Rome?", "Who?", "When?"], "quit", 7, id="asked-else"
        ),
    ],
)
def test_whoever_asks_the_same_again_may_be_told_the_same(
    asks: list[str], reason: str, calls: int
) -> None:
    """A repeated question may get a repeated answer, because a person's message counts as new."""
    spec = Conversation.model_validate(
        {"speakers": [{"name": "You", "replies": ["human"]}, {"name": "Agent"}]}
    )
    given = iter([*asks, "exit"])
    model = ScriptedChatModel(script=[PARIS] * 9)
    store = f"memory:{uuid4().hex}"
    result = converse(spec, model=model, store=store, answer=lambda question: next(given))
    assert (reason_of(result), len(model.calls)) == (reason, calls)
