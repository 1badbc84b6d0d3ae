"""A graph that serves one conversation: its clients send messages, and change nothing else."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command
from langgraph_supervisor import create_supervisor

from duologue import Conversation, SessionError, SpecError, build_graph, chat, role_play
from duologue.nodes.testing import Prompt, Reply, ScriptedChatModel, ScriptedToolCall
from support.graphs import ChatForm

CONFIG: RunnableConfig = {"configurable": {"thread_id": "one"}}
GARDEN = role_play("Plan a kitchen garden", "Cook", "Gardener", specify_task=False)
FILE = """
kind = "role_play"
task = "Plan a kitchen garden"
user_role = "Cook"
assistant_role = "Gardener"
specify_task = false
"""


def speak(prompt: Prompt) -> str:
    """Play both parts of a role-play of one round, or an agent who chats."""
    system = prompt[0]["content"]
    if "Solution:" in system:
        return "Solution: I dug a bed.\nNext request."
    if "Instruction:" in system:
        has_begun = any(one["role"] == "assistant" for one in prompt)
        return "<CAMEL_TASK_DONE>" if has_begun else "Instruction: dig a bed.\nInput: None"
    return f"You said: {prompt[-1]['content']}"


class Served:
    """A graph that serves a conversation, and the calls of its models."""

    def __init__(
        self,
        conversation: Conversation | Path,
        saver: InMemorySaver | None = None,
        **options: Any,
    ) -> None:
        self.model, self.other = (ScriptedChatModel(script=speak) for _ in range(2))
        self.saver = saver or InMemorySaver()
        self.graph = build_graph(
            conversation=conversation,
            model=self.model,
            models={"other": self.other},
            checkpointer=self.saver,
            **options,
        )

    def tasks(self) -> list[str]:
        """Return the task of each call."""
        systems = [call.prompt[0]["content"] for call in self.model.calls]
        return [text.partition("common task: ")[2].partition("\n")[0] for text in systems]

    def stored(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.graph.get_state(CONFIG).values["spec"]
        return spec


@pytest.mark.parametrize("in_loop", [True, False])
@pytest.mark.parametrize("config", [CONFIG, None], ids=["thread", "no thread"])
@pytest.mark.parametrize("given", [None, {}, {"messages": []}], ids=str)
async def test_it_runs_without_an_input(
    given: Any,  # noqa: ANN401
    config: RunnableConfig | None,
    in_loop: bool,
) -> None:
    served = Served(GARDEN)
    graph = served.graph if config else build_graph(conversation=GARDEN, model=served.model)
    found = await graph.ainvoke(given, config) if in_loop else graph.invoke(given, config)
    assert found["outcome"]["reasons"] == ["done_token"]
    assert served.tasks() == ["Plan a kitchen garden"] * 3


async def test_without_an_input_a_thread_resumes() -> None:
    served = Served(GARDEN)
    await served.graph.ainvoke({"messages": "Plan a roof"}, CONFIG, interrupt_after=["user_agent"])
    await served.graph.ainvoke(None, CONFIG)
    ended = served.graph.invoke(None, CONFIG)
    assert ended["specified_task"] == "Plan a roof"
    assert served.tasks() == ["Plan a roof"] * 3


def test_each_message_is_a_task_if_no_person_takes_part() -> None:
    served = Served(GARDEN)
    for task in ("Plan a balcony", "Plan a roof"):
        ended = served.graph.invoke({"messages": [{"role": "user", "content": task}]}, CONFIG)
        assert ended["specified_task"] == task
    assert served.tasks() == ["Plan a balcony"] * 3 + ["Plan a roof"] * 3


def test_a_message_is_the_next_turn_of_its_person() -> None:
    served = Served(chat(assistant="Gardener", task="Talk about bees."))
    for text in ("Hi.", "And now?"):
        found = served.graph.invoke({"messages": text}, CONFIG)
        assert found["messages"][-1].text == f"You said: {text}"
    assert served.stored()["task"] == "Talk about bees."


def other_model(conversation: Conversation) -> dict[str, Any]:
    changed = conversation.replace(
        model="other",
        sandbox="host",
        speakers={"Gardener": {"system_prompt": "You rest. Solution:", "tools": ["python"]}},
    )
    return changed.stored()


def test_a_client_that_sends_a_conversation_gets_an_error() -> None:
    served = Served(GARDEN)
    with pytest.raises(
        SpecError, match=r"^conversation: this graph always runs the same conversation"
    ):
        served.graph.invoke({"conversation": other_model(GARDEN)}, CONFIG)
    assert not served.model.calls
    assert [*served.saver.list(CONFIG)] == []


@pytest.mark.part(3)
@pytest.mark.parametrize("way", ["input", "context", "update_state", "command", "resume"])
@pytest.mark.parametrize("conversation", [GARDEN, chat(assistant="Gardener")], ids=["task", "chat"])
def test_nothing_that_a_client_sends_changes_it(conversation: Conversation, way: str) -> None:
    served = Served(conversation)
    graph, forged = served.graph, other_model(conversation)
    hello: dict[str, Any] = {"messages": "Hi."}
    if way == "input":
        graph.invoke(hello | {"spec": forged, "model": "other", "position": {}}, CONFIG)
    elif way == "context":
        context: Any = {"model": "other", "temperature": 2, "user_prompt": "You rest."}
        graph.invoke(hello, CONFIG, context=context)
    elif way == "update_state":
        graph.invoke(hello, CONFIG)
        graph.update_state(CONFIG, {"spec": forged}, as_node="task_specification")
    elif way == "command":
        graph.invoke(hello, CONFIG, interrupt_after=["task_specification"])
        graph.invoke(Command(update={"spec": forged, "conversation": forged}), CONFIG)
    else:
        graph.invoke(hello, CONFIG, interrupt_after=["task_specification"])
        graph.update_state(CONFIG, {"spec": forged}, as_node="task_specification")
        graph.invoke(None, CONFIG)
    graph.invoke({"messages": "And now?"}, CONFIG)
    task = {} if conversation.people else {"task": "And now?"}
    assert served.stored() == conversation.stored() | task
    assert not served.other.calls
    assert {call.kwargs["temperature"] for call in served.model.calls} <= {0.2, 0.7}
    assert not any(call.kwargs.get("tools") for call in served.model.calls)
    assert "You rest." not in str([call.prompt for call in served.model.calls])


def test_a_state_with_other_speakers_is_refused() -> None:
    served = Served(GARDEN)
    served.graph.invoke({}, CONFIG)
    other = role_play("Plan", "Ann", "Ben", specify_task=False).stored()
    with pytest.raises(SessionError, match=r"speakers\.0\.name differs; start a new thread$"):
        served.graph.update_state(CONFIG, {"spec": other}, as_node="task_specification")


def test_a_thread_continues_with_a_new_version_of_the_conversation() -> None:
    first = Served(chat(assistant="Gardener"))
    first.graph.invoke({"messages": "Hi."}, CONFIG)
    new = chat(assistant="Gardener", assistant_prompt="You are brief.")
    second = Served(new, first.saver)
    found = second.graph.invoke({"messages": "And now?"}, CONFIG)
    assert [one.text for one in found["messages"]][-2:] == ["And now?", "You said: And now?"]
    assert "You are brief." in second.model.calls[0].prompt[0]["content"]
    assert second.stored() == new.stored()
    third = Served(chat(assistant="Cook"), first.saver)
    before = third.graph.get_state(CONFIG)
    with pytest.raises(SessionError, match=r"speakers\.1\.name differs"):
        third.graph.invoke({"messages": "Hello?"}, CONFIG)
    assert third.graph.get_state(CONFIG) == before


def test_a_file_is_read_once(tmp_path: Path) -> None:
    file = tmp_path / "Kitchen garden.toml"
    file.write_text(FILE)
    served = Served(file)
    file.write_text(FILE.replace("Gardener", "Mason"))
    served.graph.invoke({}, CONFIG)
    file.unlink()
    ended = served.graph.invoke({"messages": "Plan a roof"}, CONFIG)
    assert [one.name for one in ended["messages"]][-2:] == ["Cook", "Gardener"]
    assert served.graph.name == "kitchen_garden"


@pytest.mark.parametrize(
    ("conversation", "name", "description"),
    [
        (GARDEN, "plan_a_kitchen_garden", "Plan a kitchen garden. A conversation of Cook and "),
        (GARDEN.replace(title="Beds!"), "beds", "Beds! A conversation of Cook and Gardener."),
        (GARDEN.replace(task="庭を作る。"), "duologue", "庭を作る。 A conversation of "),
    ],
)
def test_name_description_and_schema_are_its_own(
    conversation: Conversation, name: str, description: str
) -> None:
    graph = build_graph(conversation=conversation)
    schema = graph.get_input_jsonschema()
    assert graph.name == name
    assert schema["description"].startswith(description)
    assert [*schema["properties"]] == ["messages"]
    assert (graph.get_context_jsonschema() or {})["properties"] == {}
    named = build_graph(conversation=conversation, name="beds_v2", description="Plans beds.")
    schema = named.get_input_jsonschema()
    assert (named.name, schema["title"], schema["description"]) == (
        "beds_v2",
        "BedsV2Input",
        "Plans beds.",
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"conversation": "no.toml"}, "no.toml: "),
        ({"conversation": {"speakers": 5}}, "speakers: "),
        ({"conversation": chat(tools=["nosuch"])}, "speakers.1.tools: there is no tool 'nosuch'"),
        ({"conversation": chat(sandbox="host")}, "sandbox.level: 'host' is not allowed here"),
        ({"conversation": GARDEN, "form": ChatForm}, "conversation: can't be set together with"),
        (
            {"description": "Plans beds."},
            "description: there is no conversation to describe; set conversation",
        ),
    ],
)
def test_a_wrong_conversation_is_one_error_when_the_graph_is_built(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises(SpecError) as caught:
        build_graph(**options)
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)


def test_who_builds_the_graph_may_name_a_path_or_host() -> None:
    assert build_graph(conversation=chat(sandbox="host"), allow_host=True)
    graph = build_graph(conversation=chat("Hi.", model="/nowhere/weights.gguf"))
    with pytest.raises(Exception, match=r"weights\.gguf") as caught:
        graph.invoke({})
    assert "not allowed here" not in str(caught.value)


def test_as_a_node_it_ignores_a_conversation_in_its_parents_state() -> None:
    class Parent(MessagesState, total=False):
        conversation: Any

    served = Served(GARDEN)
    builder = StateGraph(Parent)
    builder.add_node("garden", served.graph)
    builder.add_edge(START, "garden")
    given: Any = {"messages": "Plan a roof", "conversation": other_model(GARDEN)}
    builder.compile().invoke(given)
    assert served.tasks() == ["Plan a roof"] * 3
    assert not served.other.calls


@pytest.mark.parametrize("mode", ["last_message", "full_history"])
def test_a_supervisor_calls_it_again_with_each_task(mode: Any) -> None:  # noqa: ANN401
    served = Served(GARDEN.replace(end_chat={"max_iterations": 1}), name="gardens")
    worker = served.graph
    script = [
        line
        for number in range(2)
        for line in (
            Reply(
                tool_calls=[
                    ScriptedToolCall(name=f"transfer_to_{worker.name}", args={}, id=f"c{number}")
                ]
            ),
            "They dug a bed.",
        )
    ]
    supervisor: Any = create_supervisor(
        [worker], model=ScriptedChatModel(script=script), output_mode=mode
    )
    graph = supervisor.compile(checkpointer=InMemorySaver())
    for task in ("Plan a balcony", "Plan a roof"):
        found = graph.invoke({"messages": [{"role": "user", "content": task}]}, CONFIG)
        said = [one.text for one in found["messages"] if one.name == "Gardener"]
        assert said[-1] == "Solution: I dug a bed.\nNext request."
    assert served.tasks() == ["Plan a balcony"] * 2 + ["Plan a roof"] * 2
