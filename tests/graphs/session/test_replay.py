"""A recorded session replays without a model (U7)."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from duologue.graphs import (
    ContextTooLongError,
    Conversation,
    EndChat,
    SeparateJudge,
    Session,
    SessionError,
    Speaker,
    SpecError,
    converse,
    stream,
)
from duologue.graphs.events import MessageSaid
from duologue.graphs.log.messages import place_of
from duologue.graphs.prompts import judging, speaking
from duologue.graphs.prompts.texts import Prompt as PromptText
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.tools import Hook, Turn
from support.fork_help import FUNCTIONS as FORKED, run
from support.fork_talks import TALKS


def plain(messages: list[Any]) -> list[tuple[object, ...]]:
    return [(place_of(one), one.type, one.text, one.additional_kwargs) for one in messages]


@pytest.mark.part(1)
@pytest.mark.parametrize("name", TALKS)
def test_every_kind_of_conversation_replays_to_the_same_log_and_outcome(
    name: str, tmp_path: Path
) -> None:
    conversation, lines = TALKS[name]
    store = f"memory:{tmp_path.name}"
    recorded = run(conversation, lines, store=store, session="one")
    again = Session("one", store=store).replay(**FORKED)
    assert plain(again.messages) == plain(recorded.messages)
    assert recorded.outcome is not None
    assert again.outcome is not None
    assert again.outcome.reasons == recorded.outcome.reasons
    assert again.outcome.verdicts == recorded.outcome.verdicts


def shaped() -> Conversation:
    return Conversation.model_validate(
        {
            "task": "Plan a garden",
            "speakers": [
                {"name": "Ann", "hooks": ["loud"]},
                {"name": "Ben", "replies": [{"kind": "function", "name": "count"}]},
            ],
            "end_chat": {"max_iterations": 3},
        }
    )


def loud(turn: Turn, reply: AIMessage) -> AIMessage:
    return AIMessage(reply.text.upper())


def speaks(turn: Turn) -> AIMessage:
    return AIMessage("one")


def louder(turn: Turn, reply: AIMessage) -> AIMessage:
    return AIMessage(reply.text.upper() + "!" * (len(turn.messages) > 2))


def count(turn: Turn) -> str:
    return f"I have seen {len(turn.messages)}."


FUNCTIONS: dict[str, Any] = {
    "functions": {"count": count},
    "hooks": {"loud": Hook(after_speaker=loud)},
}


def test_hooks_and_functions_run_again_and_the_model_does_not(tmp_path: Path) -> None:
    store = f"memory:{tmp_path.name}"
    model = ScriptedChatModel(script=["one", "two", "three"])
    recorded = converse(shaped(), session="s", store=store, model=model, **FUNCTIONS)
    again = Session("s", store=store).replay(**FUNCTIONS)
    assert plain(again.messages) == plain(recorded.messages)
    assert len(model.calls) == 3


def test_the_first_message_that_differs_is_named(tmp_path: Path) -> None:
    store = f"memory:{tmp_path.name}"
    model = ScriptedChatModel(script=["one", "two", "three"])
    recorded = converse(shaped(), session="s", store=store, model=model, **FUNCTIONS)
    second = next(one for one in recorded.messages if one.text == "TWO")
    hooks = {"loud": Hook(after_speaker=louder)}
    with pytest.raises(SessionError, match=f"at message {place_of(second)}: its text is 'TWO!'"):
        Session("s", store=store).replay(functions={"count": count}, hooks=hooks)
    with pytest.raises(SessionError, match="differs from its record"):
        Session("s", store=store).replay(
            functions={"count": lambda turn: None}, hooks=FUNCTIONS["hooks"]
        )
    with pytest.raises(SpecError, match="there is no hook 'loud'"):
        Session("s", store=store).replay(functions={"count": count})
    with pytest.raises(SessionError, match="'other'"):
        Session("other", store=store).replay()


def test_the_same_words_from_somebody_else_differ_too(tmp_path: Path) -> None:
    store = f"memory:{tmp_path.name}"
    model = ScriptedChatModel(script=["one", "two", "three"])
    functions = {"count": count}
    converse(
        shaped(), session="s", store=store, model=model, functions=functions, hooks={"loud": None}
    )
    with pytest.raises(SessionError, match="its source is 'hook' instead of 'model'"):
        Session("s", store=store).replay(functions=functions, hooks={"loud": Hook(speaks)})


def test_an_unfinished_session_replays_as_far_as_it_went(tmp_path: Path) -> None:
    store = f"memory:{tmp_path.name}"
    talk = Conversation.model_validate(
        {"task": "Plan", "speakers": [{"name": "Ann"}, {"name": "Ben"}]}
    )
    model = ScriptedChatModel(script=["one", "two", RuntimeError("gone")])
    with pytest.raises(RuntimeError, match="gone"):
        converse(talk, session="s", store=store, model=model)
    again = Session("s", store=store).replay()
    assert again.transcript == [("Ann", "one"), ("Ben", "two")]
    assert again.outcome is None


def test_a_session_that_broke_off_in_the_middle_of_a_turn_replays(tmp_path: Path) -> None:
    store = f"memory:{tmp_path.name}"
    call = Reply(text="Wait", tool_calls=[ScriptedToolCall(name="add", args={"a": 1}, id="c")])
    conversation, _ = TALKS["structured"]
    lines: list[Line] = ["Plan it.", "A", "B", call, RuntimeError("gone")]
    with pytest.raises(RuntimeError, match="gone"):
        run(conversation, lines, store=store, session="s")
    assert Session("s", store=store).replay(**FORKED).messages


def test_a_history_that_was_too_long_replays_with_its_cuts(tmp_path: Path) -> None:
    store = f"memory:{tmp_path.name}"

    said = iter(range(100))

    def answer(messages: Prompt) -> Line:
        too_long = ContextTooLongError("the model takes no more than 7 messages")
        return too_long if len(messages) > 7 else f"This is number {next(said)}."

    talk = Conversation.model_validate(
        {"task": "Plan", "speakers": [{"name": "Ann"}, {"name": "Ben"}]}
    )
    model = ScriptedChatModel(script=answer)
    recorded = converse(talk, session="s", store=store, model=model)
    assert any("duologue" in one.additional_kwargs for one in recorded.messages)
    assert "summary" in {one.additional_kwargs["duologue"]["kind"] for one in recorded.messages}
    assert plain(Session("s", store=store).replay().messages) == plain(recorded.messages)


def test_a_fork_by_other_rules_is_told_to_differ(tmp_path: Path) -> None:
    store = f"memory:{tmp_path.name}"
    talk = Conversation.model_validate(
        {"task": "Plan", "speakers": [{"name": "Ann"}, {"name": "Ben"}]}
    )
    model = ScriptedChatModel(script=lambda messages: f"Number {len(messages)}.")
    converse(talk, session="s", store=store, model=model)
    other = Session("s", store=store).fork(at="m0002", speakers={"Ann": {"hooks": ["loud"]}}).id
    Session(other, store=store).resume(model=model, hooks={"loud": Hook(after_speaker=loud)})
    with pytest.raises(SessionError, match="at message m0001"):
        Session(other, store=store).replay(hooks={"loud": Hook(after_speaker=loud)})


@pytest.mark.part(1)
@pytest.mark.parametrize("name", TALKS)
def test_what_duologue_says_itself_may_be_worded_otherwise_meanwhile(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R14: a record remains valid after the prompts of its release have changed."""
    conversation, lines = TALKS[name]
    store = f"memory:{tmp_path.name}"
    recorded = run(conversation, lines, store=store, session="one")
    for module in (judging, speaking):
        for field, text in vars(module).items():
            if isinstance(text, PromptText):
                render_prompt = PromptText(text.name, f"In other words: {text}")
                monkeypatch.setattr(module, field, render_prompt)
    assert Session("one", store=store).replay(**FORKED).transcript == recorded.transcript


def test_a_message_after_the_output_is_streamed_and_replayed_once() -> None:
    """The judge ends this session a step after Bob's message, which then leaves `messages`."""
    spec = Conversation(
        "Plan a garden.",
        [Speaker("Ann", writes_output=True), Speaker("Bob")],
        judge=SeparateJudge(["They name a plant."]),
        end_chat=EndChat(mode="end_chat_after_first_completion"),
    )
    model = ScriptedChatModel(["Beans.", "Good.", {"criterion_1": "met"}])
    options: dict[str, Any] = {"session": "one", "store": "memory:after-output"}
    events = [*stream(spec, model=model, **options)]
    assert [one.text for one in events if isinstance(one, MessageSaid)] == ["Beans.", "Good."]
    session = Session("one", store="memory:after-output")
    assert session.replay().transcript == [("Ann", "Beans."), ("Bob", "Good.")]
    assert session.state().output == "Beans."
