"""The spec: data that survives every file format, with errors of one sentence."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from duologue.graphs import (
    Conversation,
    DoneToken,
    EndChatMode,
    MaxMessages,
    Speaker,
    SpecError,
    converse,
    load_conversation,
    role_play,
)
from duologue.nodes.testing import Prompt, ScriptedChatModel
from duologue.nodes.testing.server import ScriptedServer
from support.graphs import RolePlayForm
from support.prompts import PROMPTS
from support.spec_help import as_toml, minimal
from support.tables import each_row, read_rows

# Errors in one sentence

Load = Callable[[dict[str, Any]], Conversation]


def _from_toml(data: dict[str, Any]) -> Conversation:
    Path("talk.toml").write_text(as_toml(data), encoding="utf-8")
    return load_conversation("talk.toml")


def _from_json(data: dict[str, Any]) -> Conversation:
    Path("talk.json").write_text(json.dumps(data), encoding="utf-8")
    return load_conversation(Path("talk.json"))


LOADS = {"dict": load_conversation, "toml": _from_toml, "json": _from_json}


@pytest.fixture(params=LOADS.values(), ids=list(LOADS))
def load(request: pytest.FixtureRequest) -> Load:
    found: Load = request.param
    return found


def speakers(**fields: object) -> list[dict[str, object]]:
    return [{"name": "Ann"} | fields, {"name": "Bob"}]


BAD: list[tuple[dict[str, object], list[str]]] = read_rows(__file__, "bad")


@pytest.mark.parametrize(("fields", "words"), BAD, ids=[" ".join(words)[:40] for _, words in BAD])
def test_bad_input_is_one_sentence_that_names_the_field(
    fields: dict[str, object], words: list[str], load: Load
) -> None:
    with pytest.raises(SpecError) as caught:
        load(minimal(**fields))
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert len(sentence) < 400
    for word in words:
        assert word in sentence
    if load is not load_conversation:
        assert sentence.startswith("talk.")


def test_without_any_task_the_speaker_who_lacks_one_is_named(load: Load) -> None:
    with pytest.raises(SpecError, match="task: is missing, and 'Ann' has no task either"):
        load({"speakers": speakers()})
    with pytest.raises(SpecError, match="task: is missing, and 'Bob' has no task either"):
        load({"speakers": speakers(task="Plan")})


def test_a_task_specification_needs_a_task() -> None:
    own = [{"name": "Ann", "task": "a"}, {"name": "Bob", "task": "b"}]
    with pytest.raises(SpecError, match="task_specification: "):
        load_conversation({"speakers": own, "task_specification": {}})


def test_an_empty_file_says_what_is_missing(load: Load) -> None:
    with pytest.raises(SpecError, match="speakers: is missing"):
        load({})


# The short form

ROLES = {"task": "Plan", "user_role": "Owner", "assistant_role": "Gardener"}


def _by_function(data: dict[str, Any]) -> Conversation:
    return role_play(**data)


def _by_kind(load: Load) -> Load:
    return lambda data: load({"kind": "role_play"} | data)


SHORT_LOADS = {"function": _by_function} | {name: _by_kind(it) for name, it in LOADS.items()}


@pytest.mark.parametrize("short_load", SHORT_LOADS.values(), ids=SHORT_LOADS.keys())
@pytest.mark.parametrize(
    ("fields", "words"),
    read_rows(__file__, "the_short_form_is_held_to_the_same"),
)
def test_the_short_form_is_held_to_the_same(
    fields: dict[str, object], words: str, short_load: Load
) -> None:
    with pytest.raises(SpecError) as caught:
        short_load(ROLES | fields)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("short_load", SHORT_LOADS.values(), ids=SHORT_LOADS.keys())
def test_the_short_form_means_the_same_everywhere(short_load: Load) -> None:
    fields: dict[str, Any] = {
        "mode": "all_task_must_complete",
        "max_iterations": 3,
        "seed": 7,
        "word_limit": 9,
    }
    found = short_load(ROLES | fields)
    assert found == role_play("Plan", "Owner", "Gardener", **fields)
    assert found.names == ("Owner", "Gardener")
    assert [speaker.checks_completion for speaker in found.speakers] == [True, False]
    assert found.end_chat.max_iterations == 3
    assert found.task_specification is not None
    assert found.task_specification.word_limit == 9
    assert found.seed == 7
    # The form's result is a whole conversation, which can be written again.
    assert load_conversation(found.model_dump(mode="json")) == found


BRACES: dict[str, Any] = {"done_token": "{task}!"}


def test_braces_in_a_users_own_words_stay_as_they_are() -> None:
    found = role_play("Use {done} and {me}", "Head {other}", "Hand {me}", **BRACES)
    assert found.task == "Use {done} and {me}"
    instructor = found.speakers[0].system_prompt or ""
    assert "You are Head {other}." in instructor
    assert "You lead Hand {me}," in instructor


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("roleplay", "; did you mean 'role_play'? The kinds are"),
        ("user-proxy", "; did you mean 'user_proxy'? The kinds are"),
        ("debate", "; choose one of"),
        ("", "; choose one of"),
        (3, "; choose one of"),
    ],
)
def test_an_unknown_kind_lists_the_kinds(kind: object, hint: str, load: Load) -> None:
    with pytest.raises(SpecError) as caught:
        load(ROLES | {"kind": kind})
    assert f"kind: {kind!r} is unknown{hint} 'blogger', 'chat', 'coder'" in str(caught.value)


# Files


def test_a_folder_is_not_a_file() -> None:
    Path("talk.json").mkdir()
    with pytest.raises(SpecError, match=r"^talk\.json: can't be read: Is a directory"):
        load_conversation("talk.json")


@pytest.mark.parametrize("name", ["talk.toml", "talk.json"])
def test_a_file_that_is_no_text_is_named(name: str) -> None:
    Path(name).write_bytes(b'task = "caf\xe9"')
    with pytest.raises(SpecError, match="is not UTF-8 text") as caught:
        load_conversation(name)
    assert str(caught.value).startswith(name)


@each_row("a_broken_file_names_the_line", "name", "text", "words")
def test_a_broken_file_names_the_line(name: str, text: str, words: str) -> None:
    Path(name).write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_conversation(name)
    sentence = str(caught.value)
    assert sentence.startswith(f"{name}: {words}")
    assert f"line {3 if text else 1}" in sentence
    assert "\n" not in sentence


@each_row("files_that_are_refused", "name", "text", "said")
def test_a_file_of_no_conversation_is_refused(name: str, text: str, said: str) -> None:
    if text:
        Path(name).write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_conversation(name)
    assert str(caught.value).startswith(said)


def test_a_suffix_may_be_in_capitals() -> None:
    Path("TALK.JSON").write_text(json.dumps(minimal()), encoding="utf-8")
    assert load_conversation("TALK.JSON").names == ("Ann", "Bob")


# Versions


@pytest.mark.parametrize("version", ["1", 0, -1, 1.5, True, [1]])
def test_a_version_is_a_whole_number(version: object, load: Load) -> None:
    with pytest.raises(SpecError, match="version: must be a whole number, 1 or more"):
        load(minimal(version=version))


def test_a_newer_version_asks_for_an_upgrade(load: Load) -> None:
    newest = Conversation.model_fields["version"].default
    with pytest.raises(SpecError, match=f"versions up to {newest}, not {newest + 1}; upgrade"):
        load(minimal(version=newest + 1, what_is_new=True))


# The JSON schema


def _properties(schema: object, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(schema, dict):
        for name, part in (schema.get("properties") or {}).items():
            yield f"{path}.{name}", part
        for key, part in schema.items():
            yield from _properties(part, f"{path}.{key}")
    elif isinstance(schema, list):
        for part in schema:
            yield from _properties(part, path)


def _referred(part: dict[str, Any], parts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return parts.get(str(part.get("$ref", "")).removeprefix("#/$defs/"), {})


@pytest.mark.parametrize("model", [Conversation, RolePlayForm])
def test_every_field_of_the_json_schema_is_described(
    model: type[BaseModel],
) -> None:
    schema = model.model_json_schema()
    parts = schema.get("$defs", {})
    found = {
        # If a field's description equals its class's, only the class has it.
        path: part.get("description") or _referred(part, parts).get("description")
        for path, part in _properties(schema)
    }
    assert len(found) >= len(model.model_fields)
    assert [path for path, description in found.items() if not description] == []


def test_the_json_schema_reaches_every_part_of_a_conversation() -> None:
    schema = Conversation.model_json_schema()
    parts = {
        "Speaker",
        "ModelSettings",
        "LabelledFormat",
        "BlockFormat",
        "CodeFormat",
        "SchemaFormat",
        "Opening",
        "EndChat",
        "DoneToken",
        "Judge",
    }
    assert parts < set(schema["$defs"])
    assert schema["properties"]["version"]["const"] == load_conversation(minimal()).version
    assert schema["additionalProperties"] is False


# Defaults


def test_a_role_play_has_five_rounds_and_a_task_of_fifty_words() -> None:
    found = role_play("Plan", "Owner", "Gardener")
    assert found.end_chat.max_iterations == 5
    assert found.end_chat.mode is EndChatMode.MAX_ITERATIONS_ONLY
    assert found.task_specification is not None
    assert found.task_specification.word_limit == 50
    assert load_conversation(minimal()).end_chat.max_iterations == 5


def test_what_is_sent_is_hot_for_the_task_cool_for_speakers_and_between_for_verdicts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def script(prompt: Prompt) -> str:
        asked = prompt[-1]["content"]
        return (
            '{"objectives_left": [], "complete": true}'
            if PROMPTS["judge_own_task"] in asked
            else "Dig."
        )

    fields = {
        "task_specification": {},
        "speakers": speakers(checks_completion=True),
        "end_chat": {"mode": "end_chat_after_first_completion"},
    }
    with ScriptedServer(script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        converse(minimal(**fields), store="memory:")
    assert [call.body["temperature"] for call in server.calls] == [1.0, 0.2, 0.3]


def test_a_speakers_own_parameters_are_sent() -> None:
    own = {"temperature": 0.7, "max_tokens": 9, "top_p": 0.5, "stop": ["END"], "seed": 3}
    model = ScriptedChatModel(script=lambda _: "Dig.")
    converse(
        minimal(speakers=speakers(model_settings=own), end_chat={"max_iterations": 1}),
        model=model,
        store="memory:",
    )
    sent = [call.kwargs for call in model.calls]
    assert {name: sent[0][name] for name in own} == own
    assert not {"max_tokens", "top_p", "stop", "seed"} & {
        name for name, value in sent[1].items() if value is not None
    }


@each_row("what_is_wrong_in_a_short_form_names_the_file_too", "fields", "said")
def test_what_is_wrong_in_a_short_form_names_the_file_too(
    fields: dict[str, object], said: str
) -> None:
    short = {"kind": "group_solve", "speakers": [{"name": n, "task": n} for n in "AB"]}
    with pytest.raises(SpecError) as caught:
        _from_toml(short | fields)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    "fault",
    [{"nam": "x"}, {"replies": ["modle"]}, {"examples": [{"role": "user", "content": "x"}]}],
)
def test_a_fault_in_one_of_two_speakers_does_not_make_them_too_few(fault: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        Conversation.model_validate(
            {"task": "T", "speakers": [{"name": "A"} | fault, {"name": "B"}]}
        )
    assert len(caught.value.errors()) == 1
    assert Conversation.model_json_schema()["properties"]["speakers"]["minItems"] == 2


def test_an_end_alone_replaces_the_round_cap_only_if_it_counts_messages() -> None:
    talk = Conversation("T", [Speaker("A"), Speaker("B")], end_chat={"max_iterations": 2})
    word = DoneToken("DEAL")
    assert talk.replace(end_chat=word | MaxMessages(10)).end_chat.max_iterations is None
    assert talk.replace(end_chat=[word, MaxMessages(10)]).end_chat.max_iterations is None
    assert talk.replace(end_chat=word).end_chat.max_iterations == 2
    assert talk.replace(end_chat={"when": word | MaxMessages(10)}).end_chat.max_iterations == 2
