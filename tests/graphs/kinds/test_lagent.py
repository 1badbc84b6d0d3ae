"""Lagent's examples as conversations with scripted models, with texts of our own.

The user, which only asks, is a speaker with fixed texts.
"""

import math
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, ToolCall, ToolMessage
from langchain_core.tools import BaseTool, tool

from duologue.graphs import (
    BlockFormat,
    Conversation,
    Reason,
    Result,
    blogger,
    load_conversation,
    stream,
)
from duologue.graphs.events import MessageSaid
from duologue.nodes.testing import Line as Said, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.tools import Hook, Turn
from support.log import fields_of, of_kind
from support.prompts import KIND_PROMPTS
from support.shape_help import play, shown, texts


def asking(*questions: str, agent: dict[str, Any]) -> tuple[Conversation, dict[str, Any]]:
    """Return a conversation of a user and an agent, and the function that asks the questions."""
    left = iter(questions)
    conversation = load_conversation(
        {
            "task": "Answer the user.",
            "speakers": [
                {"name": "user", "replies": [{"kind": "function", "name": "ask"}]},
                {"name": "Agent", **agent},
            ],
            "end_chat": {"max_iterations": len(questions)},
        }
    )
    return conversation, {"ask": lambda turn: next(left)}


# Models as agents, and their memory


def test_an_agent_that_has_three_words_answers_by_its_prompt_and_remembers() -> None:
    """L1, L3: one log, and the agent's memory, contain question and answer with their speakers."""
    rule = "Reply with one of these words and nothing else: calm, mild, wild.\n{task}"
    spec, functions = asking("How is the sea?", "And the wind?", agent={"system_prompt": rule})
    result, model = play(spec, ["calm", "wild"], functions=functions)
    system = "Reply with one of these words and nothing else: calm, mild, wild.\nAnswer the user."
    assert shown(model.calls[0].messages) == [f"s:{system}", "u:How is the sea?"]
    said = [(message.name, message.text) for message in of_kind(result.messages, "speech")]
    assert said == result.transcript
    assert said == [
        *(("user", "How is the sea?"), ("Agent", "calm")),
        *(("user", "And the wind?"), ("Agent", "wild")),
    ]
    memory = ["u:How is the sea?", "a:calm", "u:And the wind?"]
    assert texts(model.calls[1]) == memory
    assert shown(result.viewpoint("Agent")[1:]) == [*memory, "a:wild"]


# Custom message aggregation


def test_few_shots_stand_behind_the_system_prompt_and_set_the_form() -> None:
    """L4: examples follow the system prompt, are in no memory, and stay two."""
    shots = [
        {"role": "user", "content": "Tides today"},
        {"role": "assistant", "content": "[low]"},
    ]
    spec, functions = asking("Tides yesterday", "Tides tomorrow", agent={"examples": shots})
    result, model = play(spec, ["[high, falling]", "[rising]"], functions=functions)
    assert shown(model.calls[0].messages)[1:] == [
        *("u:Tides today", "a:[low]", "u:Tides yesterday"),
    ]
    assert texts(model.calls[1]) == [
        *("u:Tides today", "a:[low]"),
        *("u:Tides yesterday", "a:[high, falling]", "u:Tides tomorrow"),
    ]
    assert "Tides today" not in str(result.messages)
    assert spec.speaker("Agent").model_dump()["examples"] == tuple(shots)


# Flexible response formatting

CODE = BlockFormat(begin="```python\n", end="\n```\n", tool_type="code interpreter")
SOLVER = {
    "system_prompt": "Solve it step by step, and write Python for it.\n{task}",
    "format": CODE.model_dump(),
    "model_settings": {"stop": ["\n```\n"]},
}
PROBLEM = "Which whole number below 20 has the most divisors? Give the larger one of two."
THOUGHT = "I count the divisors of each number, and take the greatest of the best.\n\n"
ACTION = (
    "def divisors(n):\n    return sum(n % d == 0 for d in range(1, n + 1))\n\n"
    "print(max(range(1, 20), key=lambda n: (divisors(n), n)))"
)


def test_a_solution_is_read_into_thought_action_and_status() -> None:
    """L5, L1: the log and the stream contain the parsed reply next to the text."""
    spec, functions = asking(PROBLEM, agent=SOLVER)
    # The model stops at the end of the block, so its answer lacks the end mark.
    answer = f"{THOUGHT}```python\n{ACTION}"
    result, model = play(spec, [answer], functions=functions)
    assert model.calls[0].kwargs["stop"] == ["\n```\n"]
    parsed = [{"tool_type": "code interpreter", "thought": THOUGHT, "action": ACTION, "status": 1}]
    spoken = of_kind(result.messages, "speech")[-1]
    assert spoken.text == answer
    assert fields_of(spoken).parsed == parsed
    assert fields_of(spoken).problem is None
    spec, functions = asking(PROBLEM, agent=SOLVER)
    events = stream(
        spec,
        model=ScriptedChatModel(script=[answer]),
        functions=functions,
        store="memory:lagent-parsed",
    )
    said = [event for event in events if isinstance(event, MessageSaid)]
    assert [event.parsed for event in said] == [None, parsed]


# Consistency of tool calling


def interpreter(ran: list[str]) -> BaseTool:
    @tool
    def run_python(command: str) -> dict[str, str]:
        """Run Python code."""
        ran.append(command)
        if "1/0" in command:
            raise ZeroDivisionError("division by zero")
        return {"state": "success", "result": str(math.prod([7, 9]))}

    return run_python


def code_alone(turn: Turn, call: ToolCall) -> ToolCall:
    """Replace the whole text of a call by its code, before the tool runs."""
    code = call["args"]["command"].partition("```python\n")[2].partition("\n```\n")[0]
    return ToolCall(name=call["name"], args={"command": code}, id=call["id"])


def result_alone(turn: Turn, call: ToolCall, result: ToolMessage) -> ToolMessage:
    """Reduce a tool's result to its value or its error."""
    text = result.text if result.status == "error" else result.text.split('"')[-2]
    return ToolMessage(text, tool_call_id=result.tool_call_id, status=result.status)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        pytest.param("print(7 * 9)", "63", id="L7-success"),
        pytest.param(
            "print(1/0)", "run_python failed: ZeroDivisionError: division by zero", id="L7-error"
        ),
    ],
)
def test_action_hooks_turn_a_parsed_action_into_arguments_and_a_return_into_words(
    code: str, told: str
) -> None:
    """L6, L7: hooks of an action do the work of Lagent's code processor."""
    ran: list[str] = []
    spec, functions = asking(
        "What is 7 times 9?", agent={"tools": ["run_python"], "hooks": ["code"]}
    )
    written = f"I multiply.\n```python\n{code}\n```\n"
    call = ScriptedToolCall(name="run_python", args={"command": written}, id="c1")
    script: list[Said] = [Reply(text="First …", tool_calls=[call]), "There you are."]
    result, model = play(
        spec,
        script,
        functions=functions,
        tools=[interpreter(ran)],
        hooks={"code": Hook(before_tool=code_alone, after_tool=result_alone)},
    )
    assert ran == [code]
    assert texts(model.calls[1])[-1] == f"t:{told}"
    (answer,) = of_kind(result.messages, "tool_result")
    assert fields_of(answer).arguments == {"command": code}
    assert result.transcript[-1] == ("Agent", "There you are.")


# Multiple agents

TASK = "Write a short post on tides that a child enjoys."
WRITER = "You write posts. Told what to mend, you write the post again."
CRITIC = "You say what to mend in a post. {satisfied} alone when there is nothing."
PREFIX = "Think about this post and say what to mend.\n\n"
POSTS = ["The sea breathes.", "The sea breathes twice a day.", "It breathes with the moon.", "End."]
ADVICE = ["Say how often.", "Say why.", "Say it shorter."]


def blog(script: list[Said]) -> tuple[Result, ScriptedChatModel]:
    spec = blogger(
        TASK,
        writer="writer",
        critic="critic",
        writer_prompt=WRITER,
        critic_prompt=CRITIC,
        critic_prefix=PREFIX,
    )
    return play(spec, script)


def test_writer_and_critic_take_seven_calls_each_by_its_own_memory() -> None:
    """L3, L9: each sees itself as the assistant, and only the critic hears the prefix."""
    said = [text for pair in zip(POSTS, [*ADVICE, ""], strict=True) for text in pair][:-1]
    result, model = blog([*said])
    assert len(model.calls) == 7
    begun = texts(model.calls[0])
    assert len(begun) == 1
    writer, critic = [*begun], list[str]()
    systems = {0: f"{WRITER}\n\nThe task: {TASK}", 1: CRITIC.format(satisfied="SATISFIED")}
    systems[1] += f"\n\nThe task: {TASK}"
    for number, call in enumerate(model.calls):
        assert call.messages[0].text == systems[number % 2]
        if number % 2 == 0:
            assert texts(call) == writer
            writer.append(f"a:{said[number]}")
            critic.append(f"u:{PREFIX}{said[number]}")
        else:
            assert texts(call) == critic
            critic.append(f"a:{said[number]}")
            writer.append(f"u:{said[number]}")
    assert shown(result.viewpoint("writer")[1:]) == writer
    assert shown(result.viewpoint("critic")[1:]) == critic
    assert result.transcript[-1] == ("writer", "End.")
    assert result.outcome is not None
    assert result.outcome.total.calls == 7


def test_lagents_prefix_as_a_hook_is_the_same_to_the_critic() -> None:
    """L7: the spec's prefix needs no code, but a hook before the agent has the same effect."""
    with_prefix, model = blog([*POSTS[:1], *ADVICE[:1], *POSTS[1:2], "SATISFIED"])
    critic = {"name": "critic", "hooks": ["prefix"], "system_prompt": CRITIC}
    spec = load_conversation(
        {
            "task": TASK,
            "speakers": [{"name": "writer", "system_prompt": WRITER}, critic],
            "opening": {"first_line": with_prefix.conversation.opening.first_line},
            "end_chat": {"when": {"kind": "done_token", "token": "SATISFIED", "by": "critic"}},
        }
    )

    def prefix(turn: Turn) -> HumanMessage:
        return HumanMessage(PREFIX + turn.heard)

    script: list[Said] = [POSTS[0], ADVICE[0], POSTS[1], "SATISFIED"]
    _, hooked = play(spec, script, hooks={"prefix": Hook(before_speaker=prefix)})
    assert [texts(call) for call in hooked.calls] == [texts(call) for call in model.calls]


# The blogger: its rounds, its options and the early end


VERSIONS = ["Bees dance.", "Bees dance for you.", "Bees dance in eights.", "Bees dance maps."]
REMARKS = ["Say for whom.", "Say how they do it.", "Say why they do it."]
WHOLE = [text for pair in zip(VERSIONS, [*REMARKS, ""], strict=True) for text in pair][:-1]


@pytest.mark.part(1)
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_writer_and_critic_speak_in_rounds_and_the_writer_has_the_last_word(rounds: int) -> None:
    """L9: after the rounds, the writer sends a final version."""
    said = WHOLE[: 2 * rounds + 1]
    result, model = play(blogger("A post on bees", rounds=rounds), said)
    assert [text for _, text in result.transcript] == said
    assert [name for name, _ in result.transcript] == [*["Writer", "Critic"] * rounds, "Writer"]
    assert result.last_message("Writer") == VERSIONS[rounds]
    assert result.outcome is not None
    assert result.outcome.reasons == (Reason.MAX_MESSAGES,)
    assert len(model.calls) == 2 * rounds + 1


@pytest.mark.part(1)
@pytest.mark.parametrize("at", [1, 3, 5])
@pytest.mark.parametrize("said", ["SATISFIED", "It is good now.\nSATISFIED"])
def test_a_satisfied_critic_ends_it_with_the_version_that_it_has_read(at: int, said: str) -> None:
    """L9: a satisfied critic ends it early, with the version that it has read."""
    result, _ = play(blogger("Bees"), [*WHOLE[:at], said])
    assert result.outcome is not None
    assert (result.outcome.reasons[0], result.outcome.by) == (Reason.DONE_TOKEN, "Critic")
    assert result.last_message("Writer") == WHOLE[at - 1]


def test_the_writer_does_not_end_it_nor_does_a_critic_who_only_mentions_the_word() -> None:
    said = ["SATISFIED", "I am not SATISFIED yet.", "Bees dance."]
    result, _ = play(blogger("Bees", rounds=1), said)
    assert [text for _, text in result.transcript] == said


def test_names_prompts_prefix_word_and_parameters_can_be_set() -> None:
    spec = blogger(
        "Bees",
        writer="Ada Poet",
        critic="Lou",
        writer_prompt="Rhyme on {task} until {critic} is quiet; {braces} stay.",
        critic_prompt="Count {writer}'s feet. When they fit: {satisfied}",
        critic_prefix="Count this:\n",
        satisfied="IT FITS",
        temperature=0.9,
        seed=7,
        model="some-model",
    )
    assert [one.system_prompt for one in spec.speakers] == [
        "Rhyme on {task} until Lou is quiet; {braces} stay.",
        "Count Ada Poet's feet. When they fit: IT FITS",
    ]
    assert (spec.model, spec.seed) == ("some-model", 7)
    assert {speaker.model_settings.temperature for speaker in spec.speakers} == {0.9}
    spec = spec.model_copy(update={"model": None})
    result, model = play(spec, ["Bees, please.", "Almost.", "Bees, bees.", "It fits."])
    assert result.transcript[-1] == ("Lou", "It fits.")
    assert model.calls[0].messages[0].text.startswith("Rhyme on Bees until Lou is quiet; {braces}")
    assert texts(model.calls[1]) == ["u:Count this:\nBees, please."]
    assert model.calls[0].kwargs["seed"] == 7


def test_without_a_prefix_the_critic_hears_the_text_alone() -> None:
    _, model = play(blogger("Bees", critic_prefix=None, rounds=1), ["One.", "Two.", "Three."])
    assert texts(model.calls[1]) == ["u:One."]
    assert texts(model.calls[0]) == [f"u:{KIND_PROMPTS['blogger_begin']}"]


def test_the_most_rounds_make_a_conversation_that_can_be_run() -> None:
    assert blogger("Bees", rounds=499_999).end_chat.max_iterations == 500_000
