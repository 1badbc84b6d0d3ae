"""The text of a result, and its messages in OpenAI's format for evaluators of agents."""

import json

import pytest
from langchain_core.messages import AnyMessage, convert_to_openai_messages
from langchain_core.messages.tool import invalid_tool_call
from openai.types.chat import ChatCompletionMessageParam
from pydantic import TypeAdapter

from duologue.graphs import Conversation, chat, converse
from duologue.nodes.testing import Line, Reply, ScriptedChatModel
from support.fork_help import run
from support.fork_talks import TALKS
from support.log import Source, make_line, make_tool_line
from support.results import StoredSession, outcome_of

OPENAI = TypeAdapter(list[ChatCompletionMessageParam])
PAIR = Conversation.model_validate(
    {
        "speakers": [{"name": "Head Cook", "task": "Cook"}, {"name": "Ben", "task": "Plant"}],
        "opening": {"answers": True},
        "end_chat": {"max_iterations": 1},
    }
)


def made(*log: AnyMessage, task: str | None = None) -> StoredSession:
    return StoredSession("s", PAIR, [*log], task, None)


def spoken(number: int, text: str, source: Source = Source.MODEL) -> AnyMessage:
    return make_line(number, text, speaker="Head Cook", source=source)


def test_it_prints_who_said_what_and_how_it_ended() -> None:
    long = "\n".join(f"Line {number} of a long text." for number in range(300))
    thinking = Reply(text="I cook.", reasoning="A secret.")
    script: list[Line] = [thinking, "I plant.", "Yours?", long]
    result = converse(PAIR, model=ScriptedChatModel(script), store="memory:lines", session="two")
    assert str(result).split("\n\n") == [
        "Head Cook (private): I cook.",
        "Ben (private): I plant.",
        "Ben: Yours?",
        f"Head Cook: {long}".replace("\n", "\n    "),
        str(outcome_of(result)),
    ]
    assert repr(result) == "Result(session='two', stop_reason='max_iterations')"


def test_it_prints_what_it_waits_for_or_that_it_is_not_finished() -> None:
    waiting = converse(chat(), model=ScriptedChatModel([]), store="memory:lines", session="one")
    (question,) = waiting.pending
    assert str(waiting) == f"Waiting for User: {question.summary()}"
    assert repr(waiting) == "Result(session='one', stop_reason=None)"
    last = "Not finished after 1 message: it still runs, or it was interrupted and can be resumed."
    assert str(made(spoken(0, "Hi."))) == f"Head Cook: Hi.\n\n{last}"


def test_what_is_printed_is_harmless_to_a_terminal() -> None:
    assert "\x1b" not in str(made(spoken(0, "Hi \x1b[2J")))


@pytest.mark.part(3)
@pytest.mark.parametrize("name", TALKS)
@pytest.mark.parametrize("of_all", [True, False], ids=["outside", "speaker"])
def test_every_trajectory_is_in_openais_form(name: str, of_all: bool) -> None:
    conversation, lines = TALKS[name]
    result = run(conversation, lines, store="memory:")
    for speaker in (None,) if of_all else conversation.names:
        found = result.trajectory(speaker)
        OPENAI.validate_python(json.loads(json.dumps(found)))
        assert all(message["role"] in ("user", "assistant", "tool") for message in found)
        called = set()
        for message in found:
            called |= {call["id"] for call in message.get("tool_calls", ())}
            assert message["role"] != "tool" or message["tool_call_id"] in called
    if of_all:
        told = found[1:] if result.specified_task else found
        texts = [one["content"] for one in told if one["role"] != "tool"]
        assert [text for text in texts if text] == [text for _, text in result.transcript if text]


def test_without_a_speaker_people_are_users_and_all_others_assistants() -> None:
    calls = [invalid_tool_call(name="look", args="{", id="a")]
    calling = make_line(2, "", "tool_calls", speaker="Ben", invalid_tool_calls=calls)
    result = made(
        spoken(0, "Hello.", Source.HUMAN),
        spoken(1, "Hello again."),
        calling,
        make_tool_line(3, "No JSON.", speaker="Ben", call_id="a", final=False),
        make_tool_line(4, "No JSON!", speaker="Ben", call_id="a"),
        task="Plan",
    )
    function = {"name": "look", "arguments": "{}"}
    assert result.trajectory() == [
        {"role": "user", "content": "Plan"},
        {"role": "user", "name": "Head_Cook", "content": "Hello."},
        {"role": "assistant", "name": "Head_Cook", "content": "Hello again."},
        {
            "role": "assistant",
            "name": "Ben",
            "content": "",
            "tool_calls": [{"type": "function", "id": "a", "function": function}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "No JSON!"},
    ]


def test_a_speakers_trajectory_is_its_view_without_the_system_prompt() -> None:
    script: list[Line] = ["I cook.", "I plant.", "Yours?", "Beans."]
    result = run(PAIR, script, store="memory:")
    system, *view = result.viewpoint("Ben")
    assert system.type == "system"
    assert result.trajectory("Ben") == convert_to_openai_messages(view)
    with pytest.raises(KeyError):
        result.trajectory("Nobody")
