"""A model that refuses long prompts: the next call, and its trace in the log and the stream.

`test_context_engine` tests the same on drawn conversations.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from drawn.player import Broken, Narrow, cuts_of, followed
from drawn.talks import PEOPLE
from duologue.graphs import ContextTooLongError, Conversation, Session, astream
from duologue.graphs.events import HistoryShortened, Notice
from duologue.nodes.testing import Line, Prompt, Reply
from duologue.nodes.testing.server import ScriptedServer
from support.log import fields_of, without_ids
from support.prompts import PROMPTS
from support.results import outcome_of, reason_of

LINE = "This is said at some length, so that it soon gets too long for a model that takes little. "


def talkative(**fields: Any) -> Conversation:
    """Return a conversation of two speakers who write long messages and keep the whole history."""
    speakers = [
        {"name": "Ann", "checks_completion": True},
        {"name": "Bob", "checks_completion": True},
    ]
    off = dict.fromkeys(("unreadable_verdicts", "same_tool_calls"), 0)
    end_chat = {"mode": "all_task_must_complete", "max_iterations": 4, "guards": off}
    given = {"task": "Talk.", "speakers": speakers, "end_chat": end_chat}
    return Conversation.model_validate(given | fields)


SHORTENED_FOR: dict[str, tuple[dict[str, Any], str]] = {
    "self": ({}, PROMPTS["judge_own_task"]),
    "two questions": ({"judge": {"form": "two_questions"}}, PROMPTS["is_task_complete"]),
    "separate": (
        {"judge": {"kind": "separate", "criteria": ["They agree."]}},
        PROMPTS["judge_criteria"],
    ),
    "moderator": (
        {
            "speakers": [{"name": name} for name in PEOPLE],
            "turn_order": {"kind": "moderator"},
            "end_chat": {"max_iterations": 4},
        },
        PROMPTS["choose_next_speaker"].partition("{")[0],
    ),
}


@pytest.mark.part(1)
@pytest.mark.parametrize(("fields", "question"), SHORTENED_FOR.values(), ids=SHORTENED_FOR)
async def test_who_judges_and_who_moderates_is_shown_less_where_a_model_takes_little(
    fields: dict[str, Any], question: str
) -> None:
    """U5: if a model refuses long questions to a judge or moderator, only these are shortened."""
    conversation = talkative(**fields)

    class Picky(Narrow):
        def takes(self, prompt: Prompt) -> bool:
            return question not in prompt[-1]["content"] or super().takes(prompt)

    player = Picky(conversation, 1, unlike=True, pad=f" {LINE}" * 2, characters=1500)
    result, events, _ = await followed(player)
    assert result.outcome is not None
    cuts = cuts_of(result)
    assert len(cuts) == len(player.refused) > 0
    takes_no_part = question not in (PROMPTS["judge_own_task"], PROMPTS["is_task_complete"])
    assert all((fields_of(cut).speaker is None) is takes_no_part for cut in cuts)
    told = [event.text for event in events if isinstance(event, Notice)]
    assert told == [fields_of(cut).problem for cut in cuts]
    # A cut applies to later questions, too, so not every question is refused.
    asked = [prompt for prompt in player.answered if question in prompt[-1]["content"]]
    assert len(cuts) < len(asked)
    assert all(player.takes(prompt) for prompt in asked)


@pytest.mark.part(1)
@pytest.mark.parametrize("like", ["openai", "llama.cpp"])
async def test_a_servers_refusal_shortens_the_history_and_costs_nothing_else(
    like: Literal["openai", "llama.cpp"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """U5, over HTTP: each refused prompt is sent once, and the conversation ends as usual."""
    conversation = talkative(end_chat={"max_iterations": 5})
    player = Narrow(conversation, 1, unlike=True, pad=f" {LINE}", characters=900, like=like)
    with ScriptedServer(player.answer) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        store = f"memory:http-{like}"
        run = astream(conversation, session="s", store=store, model="scripted")
        events = [event async for event in run]
        result = await Session("s", store=store).astate()
        assert len(server.calls) == len(player.answered) + len(player.refused)
    assert reason_of(result) == "max_iterations"
    assert outcome_of(result).total.calls == len(player.answered)
    assert len(cuts_of(result)) == len(player.refused) > 0
    assert sum(isinstance(event, HistoryShortened) for event in events) == len(player.refused)


@pytest.mark.exhaustive
async def test_a_resumed_session_does_not_ask_what_was_refused_before() -> None:
    """U5: the cut is in the log, so that later failures do not lose it."""

    @dataclass
    class Failing(Narrow):
        """A model that fails at every call, except directly after a refusal in the same step."""

        broken: set[int] = field(default_factory=set)
        has_refused: bool = False

        def answer(self, prompt: Prompt) -> Line:
            number = len(self.answered) + len(self.refused)
            if number not in self.broken and not self.has_refused and self.takes(prompt):
                self.broken.add(number)
                raise Broken("once")
            self.has_refused = not self.takes(prompt)
            return super().answer(prompt)

    conversation = talkative(end_chat={"max_iterations": 6})
    smooth = Narrow(conversation, 1, pad=f" {LINE}", characters=900)
    whole, *_ = await followed(smooth)
    rough = Failing(conversation, 1, pad=f" {LINE}", characters=900)
    again, *_ = await followed(rough)
    assert len(rough.broken) > 4
    assert rough.refused == smooth.refused != []
    assert rough.answered == smooth.answered
    assert without_ids(again.messages) == without_ids(whole.messages)


async def test_only_a_prompt_whose_fixed_parts_are_too_long_makes_it_fail() -> None:
    """U5: the error names the model and the remedy, and no message is lost."""
    conversation = talkative()
    player = Narrow(conversation, 5, unlike=True, characters=900)
    player.takes = lambda prompt: len(player.answered) < 3  # type: ignore[method-assign]
    with pytest.raises(ContextTooLongError, match="shorten the system prompt, the task"):
        await followed(player, store="memory:long")
    result = await Session("s", store="memory:long").astate()
    assert result.outcome is None
    assert len(player.answered) == 3
    assert len(result.transcript) == 2


@pytest.mark.exhaustive
async def test_a_moderator_is_never_asked_again_what_it_has_refused_because_of_secrets() -> None:
    """Y16, U5: secrets, which the moderator does not hear, do not count in its cuts."""
    secret = {"prompt": "Make up a secret."}
    conversation = talkative(
        speakers=[{"name": name, "private_opening": secret} for name in PEOPLE],
        turn_order={"kind": "moderator"},
        end_chat={"max_iterations": 3},
    )

    class Picky(Narrow):
        def takes(self, prompt: Prompt) -> bool:
            asked = PROMPTS["choose_next_speaker"].partition("{")[0] in prompt[-1]["content"]
            return not asked or super().takes(prompt)

        def answer(self, prompt: Prompt) -> Line:
            if prompt[-1]["content"] == secret["prompt"]:
                self.answered.append(prompt)
                return f"A secret. {LINE}" * 20
            return super().answer(prompt)

    player = Picky(conversation, 1, unlike=True, pad=f" {LINE}" * 2, characters=1000)
    result, *_ = await followed(player)
    assert result.outcome is not None
    assert player.refused
    assert all(one not in player.refused[:place] for place, one in enumerate(player.refused))
    assert len(cuts_of(result)) == len(player.refused)


@pytest.mark.part(1)
@pytest.mark.parametrize("fields", [SHORTENED_FOR[it][0] for it in ("separate", "moderator")])
async def test_who_takes_no_part_is_asked_again_where_there_was_no_room_for_the_answer(
    fields: dict[str, Any],
) -> None:
    """U5: llama.cpp accepts a prompt that just fits, and stops in the middle of the answer."""
    conversation = talkative(**fields)

    class Full(Narrow):
        cut_off = 0

        def answer(self, prompt: Prompt) -> Line:
            found = super().answer(prompt)
            heading = PROMPTS["conversation_so_far"].partition("{")[0]
            if heading in str(prompt[-1]["content"]) and len(str(prompt)) > 2000:
                self.cut_off += 1
                return Reply(text='{"crit', finish_reason="length")
            return found

    player = Full(conversation, 1, unlike=True, pad=f" {LINE}" * 2)
    result, events, _ = await followed(player)
    assert player.cut_off > 0
    cuts = cuts_of(result)
    assert len(cuts) == player.cut_off
    assert [event.text for event in events if isinstance(event, Notice)] == [
        fields_of(cut).problem for cut in cuts
    ]
    assert outcome_of(result).total.calls == len(player.answered)
