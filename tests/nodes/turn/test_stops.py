"""R29: why a model stopped, in each kind of answer of a conversation."""

from typing import Final

import pytest
from langchain_core.messages import AIMessage

from duologue.graphs import Result
from duologue.nodes.testing import Reply, ScriptedChatModel
from duologue.tools import Hook, Turn
from support.log import fields_of
from support.people_help import play
from support.shape_help import talk

REFUSED: Final = Reply(refusal="I can't help with that.")
FILTERED: Final = Reply(text="", finish_reason="content_filter")
THOUGHT: Final = Reply(reasoning="I think and", finish_reason="length")


def stops_in(result: Result) -> list[tuple[str, str]]:
    found = map(fields_of, result.messages)
    return [(one.kind, one.stop.cause.value) for one in found if one.stop is not None]


def replying(purpose: str, reply: Reply) -> ScriptedChatModel:
    """Return a model that answers calls for this purpose by a reply, and others by words."""
    return ScriptedChatModel(
        lambda prompt, call: (
            reply if call.purpose == purpose else f"Words {len(prompt)} of {call.speaker}."
        )
    )


def test_speakers_that_speak_at_once_keep_their_reasons() -> None:
    played = play(talk(turn_order="concurrent"), [REFUSED, FILTERED, "In other words."])
    assert played.transcript == [("Ann", "I can't help with that."), ("Bob", "In other words.")]
    assert ("speech", "refusal") in stops_in(played.result)
    assert len(played.outcome.warnings) == 2


def test_a_hook_hears_a_refusal_and_the_reason_stays() -> None:
    def shout(turn: Turn, reply: AIMessage) -> AIMessage:
        return AIMessage(str(reply.text).upper())

    hook = Hook(after_speaker=shout)
    spec = talk({"name": "Ann", "hooks": ["shout"]}, "Bob")
    played = play(spec, [REFUSED, "Fine."], hooks={"shout": hook})
    assert played.transcript[0] == ("Ann", "I CAN'T HELP WITH THAT.")
    speech = next(one for one in map(fields_of, played.result.messages) if one.kind == "speech")
    assert speech.stop is not None
    assert speech.stop.refusal == "I can't help with that."


def test_a_refused_task_specification_keeps_the_task() -> None:
    played = play(talk(task_specification={}), [REFUSED, "One.", "Two."])
    assert played.transcript == [("Ann", "One."), ("Bob", "Two.")]
    [warning] = played.outcome.warnings
    assert warning == "The task specification: refused by the model: I can't help with that."


def test_a_refused_choice_is_no_choice() -> None:
    spec = talk("Ann", "Bob", "Cid", rounds=2, turn_order="moderator")
    played = play(spec, replying("choice", Reply(refusal="I can't choose Cid.")))
    assert [name for name, _ in played.transcript][:2] == ["Ann", "Bob"]
    assert "The choice of the next speaker: refused by" in " ".join(played.outcome.warnings)


@pytest.mark.parametrize("form", ["structured", "two_questions"])
def test_a_refused_verdict_of_a_speaker_is_unreadable(form: str) -> None:
    judge = {"kind": "speaker", "form": form}
    ann = {"name": "Ann", "task": "Plan.", "checks_completion": True}
    spec = talk(ann, "Bob", judge=judge, end_chat={"mode": "end_chat_after_first_completion"})
    played = play(spec, replying("verdict", Reply(refusal="No. I can't judge.")))
    verdicts = played.outcome.verdicts
    assert verdicts
    assert not any(verdict.readable for verdict in verdicts)
    assert "the verdict of Ann: refused by the model" in " ".join(map(str, played.result.why()))


@pytest.mark.parametrize(("limit", "calls"), [({"max_tokens": 70}, 1), ({}, 2)])
def test_a_verdict_is_asked_for_again_only_with_a_larger_limit(
    limit: dict[str, int], calls: int
) -> None:
    judge = {"kind": "separate", "criteria": ["Bob agrees."], **limit}
    spec = talk(judge=judge, end_chat={"mode": "end_chat_after_first_completion"})
    model = replying("verdict", Reply(reasoning="and " * 3000, finish_reason="length"))
    played = play(spec, model)
    judged = [call for call in model.calls if call.purpose == "verdict"]
    assert len(judged) == calls * len(played.outcome.verdicts)
    assert "The verdict of the judge: its thought used up" in " ".join(played.outcome.warnings)


def test_a_refused_reply_with_a_format_is_asked_for_again() -> None:
    lines = {"kind": "lines", "lines": ["Plan:"]}
    spec = talk({"name": "Ann", "format": lines}, "Bob")
    played = play(spec, [REFUSED, "Plan: rest.", "Fine."])
    assert played.transcript[0] == ("Ann", "Plan: rest.")
    assert stops_in(played.result) == [("draft", "refusal")]


def test_a_reply_that_reached_its_limit_needs_no_warning() -> None:
    played = play(talk(), [Reply(text="Once upon a ti", finish_reason="length"), "Fine."])
    assert stops_in(played.result) == [("speech", "length")]
    assert not played.outcome.warnings


def test_a_thought_in_tags_that_used_up_the_limit_is_not_asked_for_again() -> None:
    played = play(talk(), [Reply(text="<think>I think and", finish_reason="length"), "Fine."])
    assert played.transcript == [("Ann", ""), ("Bob", "Fine.")]
    assert stops_in(played.result) == [("speech", "thought")]
    assert played.outcome.warnings == ("Ann: its thought used up all tokens",)


def test_a_thought_has_not_used_up_the_limit_of_a_reply_with_words() -> None:
    half = THOUGHT.model_copy(update={"text": "Once upon a ti"})
    played = play(talk(), [half, "Fine."])
    assert stops_in(played.result) == [("speech", "length")]


def test_a_stored_session_has_its_reasons() -> None:
    played = play(talk(), [FILTERED, Reply(text="On", finish_reason="SAFETY"), REFUSED])
    causes = [cause for _, cause in stops_in(played.result)]
    assert causes == ["content_filter", "content_filter", "refusal"]
    assert stops_in(played.result.session.state()) == stops_in(played.result)
