"""Short forms accept all fields of a conversation and its speakers, and can be changed."""

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints
from uuid import uuid4

import pytest
import tomli_w

import duologue
from duologue.graphs import (
    Conversation,
    DoneToken,
    EndChat,
    Guards,
    LabelledFormat,
    MaxMessages,
    ModelSettings,
    SessionError,
    Speaker,
    SpecError,
    ToolCalled,
    chat,
    converse,
    load_conversation,
    role_play,
)
from duologue.nodes.testing import Reply, ScriptedChatModel, ScriptedToolCall
from support.graphs import forms_by_kind
from support.people_help import play
from support.tables import check_rows, read_rows

PAIR: list[dict[str, Any]] = [
    {"name": "Ann", "task": "a", "checks_completion": True},
    {"name": "Bob", "task": "b"},
]
SHORT: dict[str, dict[str, Any]] = {
    "role_play": {"task": "Plan", "user_role": "Owner", "assistant_role": "Gardener"},
    "blogger": {"task": "Bees"},
    "coder": {"task": "Add."},
    "chat": {"message": "Hi."},
    "user_proxy": {"message": "Hi."},
    "group_solve": {"speakers": PAIR},
    "simulation": {"goal": "Get a refund."},
}
MADE: dict[str, Callable[..., Conversation]] = {kind: getattr(duologue, kind) for kind in SHORT}
WHOLE: list[dict[str, Any]] = [
    {"title": "Mine"},
    {"end_chat": {"min_iterations": 1, "guards": {"echo": 0}}},
    {"end_chat": EndChat(guards=Guards(echo=0), tell_rounds_left=True)},
    {"judge": {"criteria": ["It is done."], "final_verdict": False}},
    {"model": "tiny", "prices": {"tiny": {"input": 1, "output": 2}}},
    {"seed": 7, "max_tool_rounds": 2, "max_call_errors": 3, "max_tool_errors": 4},
    {"sandbox": "monty", "tool_timeout": 9},
    {"opening": {"first_speaker": None}, "turn_order": "round_robin"},
]


def short(kind: str, **options: Any) -> Conversation:
    return MADE[kind](**SHORT[kind], **options)


def test_the_kinds_are_all_that_there_are() -> None:
    assert SHORT.keys() == forms_by_kind().keys()


@pytest.mark.parametrize("kind", SHORT)
@pytest.mark.parametrize("options", WHOLE, ids=lambda options: "-".join(options))
def test_each_form_takes_the_fields_of_a_conversation(kind: str, options: dict[str, Any]) -> None:
    """A form accepts the fields of a conversation and keeps its own values, in a file, too."""
    made = short(kind, **options)
    changes: dict[str, Any] = {
        name: one.model_dump(exclude_unset=True) if isinstance(one, EndChat) else one
        for name, one in options.items()
    }
    assert made == short(kind).replace(**changes)
    assert made == load_conversation({"kind": kind, **SHORT[kind], **options})
    assert load_conversation(made.stored()) == made
    for name in options:
        assert name in made.model_fields_set


@pytest.mark.parametrize("kind", [kind for kind in SHORT if kind != "group_solve"])
def test_each_form_takes_the_fields_of_its_speakers(kind: str) -> None:
    own = short(kind)
    for place, role in enumerate(forms_by_kind()[kind].roles):
        fields: dict[str, Any] = {
            "context": {"kind": "last", "limit": 4},
            "model_settings": ModelSettings(top_p=0.5),
            "hooks": ["shout"],
        }
        made = short(kind, temperature=0.7, **{role: fields})
        speaker, other = made.speakers[place], made.speakers[1 - place]
        assert (speaker.context.kind, speaker.hooks, other.hooks) == ("last", ("shout",), ())
        assert speaker.model_settings.top_p == 0.5
        assert speaker.model_settings.temperature == own_temperature(kind, place)
        # Everything else is as in the form.
        kept = {name: getattr(own.speakers[place], name) for name in fields}
        assert speaker.model_copy(update=kept) == own.speakers[place]
        named = {name: one for name, one in fields.items() if name != "model_settings"}
        as_object = Speaker(name=speaker.name, model_settings=fields["model_settings"], **named)
        assert short(kind, temperature=0.7, **{role: as_object}) == made


def own_temperature(kind: str, place: int) -> float | None:
    """Return the form's temperature if this speaker's model uses it."""
    only_agent = {"coder": 1, "chat": 1}
    return None if only_agent.get(kind, place) != place else 0.7


def test_one_speaker_s_own_wins_over_what_is_for_both() -> None:
    made = short("role_play", temperature=0.7, user={"model_settings": {"temperature": 0}})
    assert [one.model_settings.temperature for one in made.speakers] == [0, 0.7]


ENDS: list[Any] = [
    MaxMessages(limit=3),
    DoneToken(token="DEAL") | MaxMessages(limit=12),  # noqa: S106
    {"kind": "max_messages", "limit": 3},
    [MaxMessages(limit=3)],
]


@pytest.mark.parametrize("kind", SHORT)
@pytest.mark.parametrize("end", ENDS, ids=lambda end: type(end).__name__)
def test_each_form_takes_an_end_alone(kind: str, end: Any, tmp_path: Path) -> None:  # noqa: ANN401
    made = short(kind, end_chat=end)
    whole = EndChat(when=end)
    ends = whole.when
    assert ends is not None
    own = short(kind).end_chat.when
    assert made.end_chat.when == (ends if own is None else own | ends)
    for one in (made, made.replace(end_chat={"max_iterations": 5})):
        assert load_conversation(one.stored()) == one
    path = tmp_path / "short.json"
    written = whole.model_dump(mode="json", exclude_unset=True)["when"]
    path.write_text(json.dumps({"kind": kind, **SHORT[kind], "end_chat": written}))
    assert load_conversation(path) == made


@pytest.mark.parametrize("kind", SHORT)
def test_the_parameters_of_a_form_s_function_are_all_that_it_takes(kind: str) -> None:
    """Types, defaults and descriptions agree in Python and Studio; the task comes first."""
    form, parameters = forms_by_kind()[kind], inspect.signature(MADE[kind]).parameters
    assert {*parameters} == {*form.taken()}
    assert [*form.model_fields][: len(form.parameters)] == [
        name for name in parameters if name in form.parameters
    ]
    assert [name for name, one in parameters.items() if one.kind is one.VAR_KEYWORD] == []
    described = inspect.getdoc(MADE[kind]) or ""
    for name in form.parameters:
        field, shown = form.model_fields[name], parameters[name].default
        default = inspect.Parameter.empty if field.is_required() else field.default
        assert shown == ("EndChat()" if isinstance(default, EndChat) else default), name
        assert field.description, name
        assert f"\n    {name}: {field.description[:30]}" in described, name
    assert get_type_hints(MADE[kind]).keys() == {*parameters, "return"}


def test_a_signature_says_what_may_be_passed() -> None:
    shown = str(inspect.signature(role_play))
    assert shown.startswith("(task: str, user_role: str, assistant_role: str, *, user: ")
    assert "mode: EndChatMode | str = 'max_iterations_only', max_iterations: int = 5," in shown
    assert shown.endswith(") -> Conversation")


def test_a_call_without_what_is_required_is_a_type_error() -> None:
    for values, said in (
        (("Plan",), r"^role_play\(\) missing a required argument: 'user_role'$"),
        (("Plan", "A", "B", "C"), r"^role_play\(\) too many positional arguments$"),
    ):
        with pytest.raises(TypeError, match=said):
            MADE["role_play"](*values)


@pytest.mark.parametrize("when", [MaxMessages(limit=8), [{"kind": "max_messages", "limit": 8}]])
def test_other_ends_stand_beside_the_form_s_own(when: object) -> None:
    made = short("role_play", end_chat={"when": when, "max_iterations": 9})
    own = short("role_play").end_chat.when
    assert isinstance(own, DoneToken)
    assert made.end_chat.when == own | MaxMessages(limit=8)
    assert made.end_chat.max_iterations == 9
    assert short("role_play", end_chat={"when": None}).end_chat.when == own
    # A change replaces them.
    assert short("role_play").replace(end_chat={"when": when}).end_chat.when == MaxMessages(limit=8)


def test_a_format_takes_the_place_of_the_form_s_own() -> None:
    plan = LabelledFormat(lines=("Plan:",))
    for given in (plan, {"lines": ["Plan:"]}):
        assert short("role_play", user={"format": given}).speakers[0].format == plan
    assert short("role_play", user={"format": None}).speakers[0].format is None


def test_what_stands_in_a_dict_of_the_form_s_own_stays_there() -> None:
    own = short("blogger").speakers[1].prefixes
    assert short("blogger", critic={"prefixes": {}}).speakers[1].prefixes == own
    told = short("blogger", critic={"prefixes": {"Writer": "Read: "}})
    assert told.speakers[1].prefixes == {"Writer": "Read: "}


def test_a_prompt_takes_the_place_of_the_few_words_for_a_tiny_model() -> None:
    told = short("role_play", user={"system_prompt": "You lead."}).speakers
    assert (told[0].system_prompt, told[0].small_model_prompt) == ("You lead.", None)
    assert told[1].small_model_prompt is not None


@pytest.mark.parametrize("given", ["Cook", {"name": "Cook"}, Speaker(name="Cook")])
def test_a_speaker_is_named_in_short_or_among_its_fields(given: str | Speaker) -> None:
    expected = role_play("Plan", "Cook", "Gardener")
    data = {"kind": "role_play", "task": "Plan", "user": given, "assistant_role": "Gardener"}
    assert load_conversation(data) == expected
    assert role_play("Plan", "Cook", "Gardener", user=given) == expected
    assert chat(user=given) == chat(user="Cook")


def test_a_file_has_it_all(tmp_path: Path) -> None:
    path = tmp_path / "garden.toml"
    more: dict[str, Any] = {
        "user": {"tools": ["clock"]},
        "assistant": {"model_settings": {"max_tokens": 90}},
        "end_chat": {"when": [{"kind": "max_messages", "limit": 8}]},
        "seed": 3,
    }
    path.write_text(tomli_w.dumps({"kind": "role_play", **SHORT["role_play"], **more}))
    assert load_conversation(path) == short("role_play", **more)
    path.write_text(tomli_w.dumps({"kind": "chat", "user": {"nme": "Bob"}}))
    with pytest.raises(SpecError, match=r"garden\.toml: user\.nme: there is no such field; did "):
        load_conversation(path)


def test_what_is_given_twice_is_one_error_that_names_both() -> None:
    def check(kind: str, options: dict[str, Any], both: str) -> None:
        with pytest.raises(SpecError) as caught:
            short(kind, **options)
        short_name, _, whole = str(caught.value).partition(" set the same")[0].partition(" and ")
        assert str(caught.value).startswith(both)
        assert whole.split(".")[0] in options
        assert short_name in {*options, *SHORT[kind]}

    check_rows(read_rows(__file__, "short_forms_set_twice"), check)


def test_what_only_follows_from_a_field_may_be_given_beside_it() -> None:
    assert (
        short("chat", tools=["clock"], assistant={"speaks_with_tool_calls": False})
        .speakers[1]
        .speaks_with_tool_calls
        is False
    )


def test_a_wrong_option_is_one_error_that_names_it() -> None:
    def check(kind: str, options: dict[str, Any], said: str) -> None:
        given = SHORT[kind] | options
        with pytest.raises(SpecError) as made:
            MADE[kind](**given)
        with pytest.raises(SpecError) as read:
            load_conversation({"kind": kind} | given)
        assert str(made.value).startswith(said)
        assert str(read.value).startswith(said)

    rows = read_rows(__file__, "short_form_errors")
    check_rows([*rows, ("blogger", {"task": None}, "task: ")], check)


def test_what_the_form_fills_in_is_not_compared_when_a_session_goes_on() -> None:
    """Values from the form are not compared on resume, because another release may differ."""
    given = short("role_play", user={"tools": ["clock"]}, end_chat={"guards": {"echo": 0}})
    older = given.replace(
        speakers={"Owner": {"system_prompt": "You lead."}}, end_chat={"max_iterations": 8}
    )

    def begin_and_go_on(stored: Conversation) -> None:
        store = f"memory:{uuid4().hex}"
        with pytest.raises(RuntimeError, match="begun"):
            play(stored, [RuntimeError("begun")], store=store)
        play(given, [RuntimeError("resumed")], store=store)

    with pytest.raises(RuntimeError, match="resumed"):
        begin_and_go_on(older)
    changes: list[tuple[dict[str, Any], str]] = [
        ({"speakers": {"Owner": {"tools": []}}}, "speakers.0.tools differs"),
        ({"end_chat": {"guards": {"echo": 3}}}, "end_chat.guards.echo differs"),
    ]
    for change, differs in changes:
        with pytest.raises(SessionError, match=differs):
            begin_and_go_on(given.replace(**change))


def search(query: str) -> str:
    """Search the web."""
    return f"found {query}"


def test_a_conversation_is_changed_by_making_another() -> None:
    before = short("chat", tools=[search])
    stored = before.stored()
    after = before.replace(
        seed=3,
        sandbox="monty",
        end_chat={"max_iterations": 2},
        speakers={"Assistant": {"name": "Ada", "system_prompt": "You help."}},
    )
    assert before.stored() == stored
    assert (after.seed, after.sandbox.level, after.end_chat.max_iterations) == (3, "monty", 2)
    assert after.names == ("User", "Ada")
    assert after.end_chat.on_guard == "ask"
    assert after.speakers[0] is before.speakers[0]
    call = ScriptedToolCall(name="search", args={"query": "beans"}, id="1")
    model = ScriptedChatModel(script=[Reply(tool_calls=[call]), "Beans grow.", "Yes."])
    result = converse(after, model=model, store="memory:", answer=lambda question: "More?")
    # The function of the first conversation is still there.
    assert [one.text for one in result.messages if one.type == "tool"] == ["found beans"]
    assert before.replace() == before
    capped = short("coder")
    assert capped.replace(seed=3).end_chat.max_iterations == capped.end_chat.max_iterations == 4
    assert before.replace().model_fields_set == before.model_fields_set
    assert short("group_solve").replace(speakers=PAIR[::-1]).names == ("Bob", "Ann")


def test_a_wrong_change_is_one_error_that_names_it() -> None:
    def check(changes: dict[str, Any], said: str) -> None:
        with pytest.raises(SpecError) as caught:
            short("group_solve").replace(**changes)
        assert str(caught.value).startswith(said)

    check_rows(read_rows(__file__, "change_errors"), check)


def test_a_tool_is_named_by_itself_wherever_one_is_named() -> None:
    end = ToolCalled(tool=search)
    made = chat("Beans?", tools=["search"], interrupt_on={search: True}, end_chat={"when": end})
    assert made == chat(
        *("Beans?",),
        tools=["search"],
        interrupt_on={"search": True},
        end_chat={"when": ToolCalled(tool="search")},
    )
    call = ScriptedToolCall(name="search", args={"query": "beans"}, id="1")
    model = ScriptedChatModel(script=[Reply(tool_calls=[call]), "Beans grow."])
    approved = {"decisions": [{"type": "approve"}]}
    result = converse(made, model=model, store="memory:", answer=lambda question: approved)
    assert result.outcome is not None
    assert result.outcome.reason == "tool_called"


def test_a_person_instructs_in_a_role_play_in_any_words() -> None:
    spec = short("role_play", people=["Owner"], specify_task=False)
    found = play(spec, ["Solution: Dug.\nNext request."], ["Dig, please!", "<CAMEL_TASK_DONE>"])
    assert found.transcript[:2] == [
        ("Owner", "Dig, please!"),
        ("Gardener", "Solution: Dug.\nNext request."),
    ]
    assert (found.reason, found.outcome.by) == ("done_token", "Owner")
    # The format applies only to models.
    assert "problem" not in str(found.result.messages[1].additional_kwargs)
    assert len(found.prompts) == 1


def test_a_person_criticises_what_a_model_writes() -> None:
    spec = short("blogger", people=["Critic"])
    found = play(spec, ["A long text.", "A text."], ["Shorter.", "SATISFIED"])
    assert [text.rpartition("\n")[2] for text in found.heard] == ["A long text.", "A text."]
    assert (found.reason, found.outcome.by) == ("done_token", "Critic")
