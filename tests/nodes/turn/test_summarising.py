"""Running summaries: the request to the model, and the entries in the log."""

from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from langchain_core.messages import AnyMessage

from drawn.player import too_long
from duologue.graphs import Result, Session, stream
from duologue.graphs.events import Notice
from duologue.nodes.testing import Call, Line, Prompt, Reply, Script, ScriptedChatModel
from support.log import fields_of, of_kind, place_of
from support.results import outcome_of
from support.shape_help import talk

MORE = " and so on" * 20
SAID = ["Let us meet.", "On Monday?", "At nine.", "Fine.", "Where?", "Here.", "Good.", "Bye then."]


class Ran(NamedTuple):
    """A conversation in which Ann's history is summarized by a separate model."""

    result: Result
    asked: list[Call]
    """The requests for a summary."""
    notices: list[str]

    @property
    def requests(self) -> list[str]:
        return [call.messages[-1].text for call in self.asked]

    @property
    def summaries(self) -> list[AnyMessage]:
        return of_kind(self.result.messages, "summary")


def run(
    script: Script, *said: Line, bob: dict[str, Any] | None = None, rounds: int = 4, **context: Any
) -> Ran:
    """Run a conversation in which Ann and Bob say these lines, by default long ones."""
    policy = {"kind": "summary", "limit": 300, "words": 40, "model": "cheap"} | context
    ann = {"name": "Ann", "context": policy, "tools": (bob or {}).get("tools", [])}
    guards = {"standstill": 0, "same_replies": 0, "echo": 0}
    spec = talk(ann, {"name": "Bob"} | (bob or {}), rounds=rounds, end_chat={"guards": guards})
    cheap = ScriptedChatModel(script)
    lines = said or [f"{one}{MORE}" for one in SAID]

    def add(a: int) -> str:
        """Add one."""
        return f"It is {a + 1}."

    options: dict[str, Any] = {"models": {"cheap": cheap}, "tools": [add]}
    model, store = ScriptedChatModel([*lines]), f"memory:{uuid4().hex}"
    events = list(stream(spec, model=model, session="s", store=store, **options))
    notices = [one.text for one in events if isinstance(one, Notice)]
    return Ran(Session("s", store=store).state(), cheap.calls, notices)


def test_the_cheap_model_is_asked_and_its_answer_is_heard_by_nobody() -> None:
    ran = run(["They meet.", "It is at nine."], temperature=0.5)
    assert [(one.text, fields_of(one).since) for one in ran.summaries] == [
        *(("They meet.", "m0004"), ("It is at nine.", "m0007")),
    ]
    about = fields_of(ran.summaries[0])
    assert (place_of(ran.summaries[0]), about.speaker, about.audience) == ("m0005", "Ann", ())
    assert outcome_of(ran.result).usage["cheap"].calls == 2
    first, second = ran.requests
    for words in ("(to Ann) Please begin.", *("Ann: Let us meet.", "Bob: On Monday?"), "40 words"):
        assert words in first
    assert "Fine." not in first
    assert ran.asked[0].kwargs["temperature"] == 0.5
    # The earlier summary is part of the next one.
    assert second.index("They meet.") < second.index("Fine.")


def test_a_summary_of_another_speaker_is_no_part_of_it() -> None:
    context = {"kind": "summary", "limit": 300, "words": 40, "model": "cheap"}
    ran = run(lambda prompt, call: f"{call.speaker} lies.", bob={"context": context})
    assert {call.speaker for call in ran.asked} == {"Ann", "Bob"}
    for call, request in zip(ran.asked, ran.requests, strict=True):
        other = "Bob" if call.speaker == "Ann" else "Ann"
        assert f"{other} lies." not in request


@pytest.mark.parametrize("blank", ["", " \n"])
def test_a_blank_answer_keeps_the_summary_before(blank: str) -> None:
    ran = run(["They meet.", blank])
    assert [(one.text, fields_of(one).since) for one in ran.summaries] == [
        *(("They meet.", "m0004"), ("They meet.", "m0007")),
    ]
    assert outcome_of(ran.result).usage["cheap"].calls == 2


def test_a_summary_that_is_too_long_is_cut_at_a_sentence() -> None:
    ran = run(["They meet. On Monday, at nine in the morning."] * 2, words=5)
    assert [one.text for one in ran.summaries] == ["They meet."] * 2


def test_calls_and_results_are_told_to_their_caller_alone() -> None:
    def call(number: int, text: str = "") -> Reply:
        made = {"name": "add", "args": {"a": number}, "id": f"c{number}"}
        return Reply(text=text, tool_calls=[made])

    blank = ["", ""]
    long = (f"{one}{MORE}" for one in SAID)
    said: list[Line] = [call(17), f"Good.{MORE}", call(4, "Wait."), *blank, *long]
    ran = run(["Sums."] * 2, *said, bob={"tools": ["add"]}, limit=430)
    asked = "".join(ran.requests)
    for words in ('(Ann called add with {"a": 17})', "It is 18.", "Bob: Wait.", "(empty message)"):
        assert words in asked
    assert '"a": 4' not in asked
    assert "It is 5." not in asked


def test_what_the_cheap_model_refuses_as_too_long_is_halved_and_said() -> None:
    ran = run([too_long(900, 512), too_long(600, 512), "Short.", "Shorter."])
    assert [one.text for one in ran.summaries] == ["Short.", "Shorter."]
    assert outcome_of(ran.result).usage["cheap"].calls == 2
    asked = ran.requests[:3]
    assert ["Let us meet." in one for one in asked] == [True, False, False]
    assert ["On Monday?" in one for one in asked] == [True, True, False]
    assert all("At nine." in one for one in asked)
    assert len(ran.notices) == 2
    assert all("too long" in one and "older half" in one for one in ran.notices)


def test_a_single_line_that_is_too_long_is_shortened() -> None:
    def answer(prompt: Prompt) -> Line:
        size = len(str(prompt)) // 4
        return too_long(size, 1000) if size > 1000 else "They meet."

    long = "Let us meet. " * 850
    ran = run(answer, long, "On Monday?", "Fine.", "Bye.", rounds=2, limit=3000)
    _, first, second = ran.requests
    assert len(second) * 2 < len(first)
    assert "characters are left out here" in second
    assert second[:40] == first[:40]
    assert second[-40:] == first[-40:]


def test_a_single_line_that_stays_too_long_leaves_the_summary_as_it_was() -> None:
    ran = run(lambda prompt: too_long(900, 512), *(f"{one}{MORE}" for one in SAID[:6]), rounds=3)
    assert [(one.text, fields_of(one).since) for one in ran.summaries] == [("", "m0004")]
    assert "cheap" not in outcome_of(ran.result).usage
    assert len(ran.asked) == 4
    assert len(ran.notices) == 3
