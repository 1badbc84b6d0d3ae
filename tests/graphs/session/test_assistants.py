"""Assistants of a LangGraph server: their settings, their form, and the names they may not use."""

from itertools import cycle
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver

from duologue import SpecError, build_graph, role_play
from duologue.nodes.testing import Prompt, ScriptedChatModel
from support.graphs import Form, Graph, RolePlayForm, forms_by_kind
from support.tables import each_row

FORM: dict[str, Any] = {
    "task": "Plan",
    "user_role": "Owner",
    "assistant_role": "Gardener",
    "specify_task": False,
}
CONFIG: RunnableConfig = {"configurable": {"thread_id": "one"}}


BEDS = cycle(f"{size} {colour} bed" for size in ("big", "old", "wet") for colour in ("red", "blue"))


def speak(prompt: Prompt) -> str:
    """Return a different reply each time, for both speakers."""
    bed = next(BEDS)
    if "Solution:" in prompt[0]["content"]:
        return f"Solution: I dug the {bed}.\nNext request."
    if "Instruction:" in prompt[0]["content"]:
        return f"Instruction: dig the {bed}.\nInput: None"
    return f"What of the {bed}?"


class Played:
    """The graph of a form, and a record of the calls of its models."""

    def __init__(self, form: type[Form] | None = RolePlayForm) -> None:
        self.default = ScriptedChatModel(script=speak)
        self.named = {name: ScriptedChatModel(script=speak) for name in ("big", "small")}
        self.graph: Graph = build_graph(
            model=self.default, models=self.named, form=form, checkpointer=InMemorySaver()
        )

    def run(self, given: Any, context: Any = None) -> Any:  # noqa: ANN401
        return self.graph.invoke(given, CONFIG, context=context)

    @property
    def spoke(self) -> dict[str, list[Any]]:
        """Return the temperatures of all calls, for each model that was called."""
        models = {"default": self.default, **self.named}
        return {
            name: [call.kwargs["temperature"] for call in model.calls]
            for name, model in models.items()
            if model.calls
        }


ROUND = {"max_iterations": 1}


@pytest.mark.part(3)
@pytest.mark.parametrize(
    ("context", "given", "spoke"),
    [
        (None, {}, {"default": [0.2, 0.2]}),
        ({}, {}, {"default": [0.2, 0.2]}),
        ({"model": None, "temperature": None}, {}, {"default": [0.2, 0.2]}),
        ({"model": "big", "temperature": 0.7}, {}, {"big": [0.7, 0.7]}),
        ({"temperature": 0}, {}, {"default": [0, 0]}),
        # The input of a run has priority.
        ({"model": "big", "temperature": 0.7}, {"model": "small"}, {"small": [0.7, 0.7]}),
        ({"model": "big", "temperature": 0.7}, {"temperature": 1}, {"big": [1, 1]}),
        # A parent's context may contain other entries, or be no dict at all.
        ({"model": "big", "user_id": "u1"}, {}, {"big": [0.2, 0.2]}),
        (object(), {}, {"default": [0.2, 0.2]}),
    ],
)
def test_a_run_goes_by_its_input_then_its_assistant_then_the_defaults(
    context: Any,  # noqa: ANN401
    given: dict[str, Any],
    spoke: dict[str, list[float]],
) -> None:
    played = Played()
    assert played.run(FORM | ROUND | given, context)["outcome"]["reasons"] == ["max_iterations"]
    assert played.spoke == spoke


def test_system_prompts_and_what_models_are_told_are_settings_too() -> None:
    played = Played()
    context = {
        "user_prompt": "You lead {other}. {task}: Instruction:",
        "assistant_prompt": "You dig.",
        "prompts": {"conversation_task": "What to do: {task}"},
    }
    played.run(FORM | ROUND | {"assistant_prompt": "You plant. Solution:"}, context)
    systems = [call.prompt[0]["content"] for call in played.default.calls]
    assert [one.split("\n\nYour message")[0] for one in systems] == [
        "You lead Gardener. Plan: Instruction:",
        "You plant. Solution:\n\nWhat to do: Plan",
    ]


@pytest.mark.part(3)
@pytest.mark.parametrize("form", [None, *forms_by_kind().values()], ids=str)
def test_a_whole_conversation_takes_what_it_leaves_open(form: type[Form] | None) -> None:
    played = Played(form)
    speakers = [
        {"name": "Ann", "model_settings": {"temperature": 0.1}},
        {"name": "Ben", "model": "small"},
    ]
    talk = {"task": "Talk.", "speakers": speakers, "end_chat": {"max_iterations": 1}}
    played.run({"conversation": talk}, {"model": "big", "temperature": 0.9})
    assert played.spoke == {"big": [0.1], "small": [0.9]}


def test_a_thread_goes_on_as_it_began_whatever_its_assistant_is_set_to_later() -> None:
    played = Played()
    given: Any = FORM | {"max_iterations": 2}
    first = {"model": "big", "temperature": 0.7}
    played.graph.invoke(given, CONFIG, context=first, interrupt_after=["assistant_agent"])
    ended = played.run(given, {"model": "small", "user_prompt": "You rest.", "temperature": 2})
    assert ended["outcome"]["reasons"] == ["max_iterations"]
    assert played.spoke == {"big": [0.7] * 4}


@each_row("a_wrong_setting_is_one_sentence_that_names_it", "context", "words")
def test_a_wrong_setting_is_one_sentence_that_names_it(context: Any, words: str) -> None:  # noqa: ANN401
    played = Played()
    with pytest.raises(SpecError) as caught:
        played.run(FORM, context)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert played.spoke == {}


PLACES = ["/etc/passwd.gguf", "weights.GGUF ", "http://10.0.0.1/v1", "huggingface:/srv/model"]


@pytest.mark.parametrize("where", ["form", "context", "speaker", "judge"])
@pytest.mark.parametrize("place", PLACES)
def test_no_client_names_a_file_or_an_address(place: str, where: str) -> None:
    """Neither a client's input nor its state may name a file or an address as model."""
    talk = role_play(**FORM).stored()
    given, context = {
        "form": (FORM | {"model": place}, None),
        "context": (FORM, {"model": place}),
        "speaker": ({"conversation": changed(talk, "speakers", place)}, None),
        "judge": ({"conversation": changed(talk, "judge", place)}, None),
    }[where]
    played = Played()
    with pytest.raises(SpecError, match="is a file or an address, which is not allowed here"):
        played.run(given, context)
    assert played.spoke == {}


def changed(talk: dict[str, Any], where: str, model: str) -> dict[str, Any]:
    if where == "judge":
        judge = {"kind": "separate", "criteria": ["Done."], "model": model}
        ends = {"mode": "end_chat_after_first_completion"}
        return talk | {"judge": judge, "end_chat": talk["end_chat"] | ends}
    first, second = talk["speakers"]
    return talk | {"speakers": [first | {"model": model}, second]}


async def test_a_spec_that_a_client_writes_into_a_state_names_none_either() -> None:
    played = Played()
    graph = played.graph
    form: Any = FORM
    await graph.ainvoke(form, CONFIG, interrupt_after=["task_specification"])
    spec = changed((await graph.aget_state(CONFIG)).values["spec"], "speakers", PLACES[0])
    await graph.aupdate_state(CONFIG, {"spec": spec}, as_node="task_specification")
    with pytest.raises(SpecError, match="not allowed here"):
        await graph.ainvoke(None, CONFIG)


@pytest.mark.parametrize("name", PLACES)
def test_who_builds_a_graph_may_allow_it_and_names_of_its_own_are_none(name: str) -> None:
    model = ScriptedChatModel(script=speak)
    graph = build_graph(form=RolePlayForm, models={name: model})
    given: Any = FORM | ROUND | {"model": name}
    assert graph.invoke(given)["outcome"]
    graph = build_graph(form=RolePlayForm, model=model, allow_paths=True)
    with pytest.raises(Exception) as caught:  # noqa: PT011  # each fails in its own way
        graph.invoke(given)
    assert "not allowed here" not in str(caught.value)


@pytest.mark.part(3)
@pytest.mark.parametrize("form", forms_by_kind().values(), ids=lambda form: form.kind())
def test_the_input_of_a_form_has_all_that_its_own_schema_says(form: type[Form]) -> None:
    """A form's input has the limits, patterns, choices, defaults and texts of its schema."""
    own = form.model_json_schema()
    shown = build_graph(form=form).get_input_jsonschema()
    for name, field in own["properties"].items():
        assert shown["properties"][name] == field, name
    assert sorted(shown.get("required", [])) == sorted(own.get("required", []))
    assert next(iter(shown["properties"])) in ("task", "message", "goal")


@pytest.mark.parametrize("form", [None, *forms_by_kind().values()], ids=str)
def test_the_settings_are_described_for_studio(form: type[Form] | None) -> None:
    schema = build_graph(form=form).get_context_jsonschema() or {}
    fields = schema["properties"]
    assert {"model", "temperature", "prompts"} <= set(fields)
    assert "required" not in schema
    for name, field in fields.items():
        assert field["description"], name
        assert field["langgraph_nodes"] == ["user_agent", "assistant_agent"]
        assert (field.get("langgraph_type") == "prompt") is name.endswith("_prompt")
    assert fields["temperature"]["anyOf"][0] == {"type": "number", "minimum": 0, "maximum": 2}
