"""R2: thoughts in conversations are kept apart, heard by no speaker, and decide nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import tool
from pydantic import BaseModel

from duologue.graphs import Conversation, Result, Session, converse, load_session, stream
from duologue.graphs.events import Event, MessageSaid, MessageToken, ThoughtReceived
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.nodes.testing.server import ScriptedServer
from duologue.tools import Hook, Turn
from support.cli_help import duologue, isolate
from support.log import fields_of, kind_of, of_kind
from support.results import outcome_of
from support.shape_help import talk, tokens_by_message
from support.tables import read_rows

THOUGHT = "My secret is 42."
WAYS = {row.pop("way"): Reply(**row) for row in map(dict, read_rows(__file__, "ways_of_thinking"))}


def play(spec: Conversation, *script: Line, **options: Any) -> tuple[Result, list[Prompt]]:
    model = ScriptedChatModel(script=[*script])
    options.setdefault("store", "memory:")
    result = converse(spec, model=model, **options)
    return result, [call.prompt for call in model.calls]


def thoughts(result: Result) -> list[str | None]:
    found = [
        fields_of(message).thought for message in result.messages if kind_of(message) == "speech"
    ]
    return [None if one is None else one.text for one in found]


def heard(prompts: list[Prompt]) -> str:
    return json.dumps(prompts, ensure_ascii=False)


@pytest.mark.part(3)
@pytest.mark.parametrize("way", WAYS)
def test_r2_a_thought_is_kept_beside_the_message_and_heard_by_nobody(way: str) -> None:
    result, prompts = play(talk(rounds=2), WAYS[way], "So?", "Go.", "Yes.")
    assert result.transcript[0] == ("Ann", "Ready.")
    assert thoughts(result) == [THOUGHT, None, None, None]
    assert THOUGHT not in heard(prompts)
    assert "Ready." in heard(prompts[1:2])
    for name in ("Ann", "Bob"):
        assert THOUGHT not in str(result.viewpoint(name))


def test_r2_a_thought_that_is_not_closed_says_nothing_so_it_is_asked_for_again() -> None:
    result, prompts = play(talk(), f"<think>{THOUGHT}", "Ready.", "Fine.")
    assert [text for _, text in result.transcript] == ["Ready.", "Fine."]
    draft = next(fields_of(one) for one in result.messages if kind_of(one) == "draft")
    assert draft.thought is not None
    assert draft.thought.text == THOUGHT
    assert THOUGHT not in heard(prompts)


def test_r2_a_thought_ends_nothing_and_is_not_counted() -> None:
    end_chat = {"when": [{"kind": "done_token", "token": "DEAL"}], "guards": {"same_replies": 3}}
    spec = talk(rounds=4, end_chat=end_chat)
    long = "I have said this very same sentence to you before, I am quite sure of it."
    script = [f"<think>{long}\nDEAL\n</think>Number {n} it is." for n in range(8)]
    result, _ = play(spec, *script)
    assert outcome_of(result).reasons == ("max_iterations",)
    assert [cause.kind for cause in result.why()] == ["reason"]


def test_r2_a_thought_has_no_form_and_plays_no_part() -> None:
    spec = talk({"name": "Ann", "format": {"kind": "blocks", "begin": "[", "end": "]"}}, "Bob")
    said = "So: [thought: Hm.]"
    result, _ = play(spec, f"<think>[1] or ]\nBob: No.</think>{said}", "Fine.")
    assert not of_kind(result.messages, "draft")
    plain, _ = play(spec, said, "Fine.")
    assert result.parsed("Ann") == plain.parsed("Ann")


@pytest.mark.parametrize("form", ["structured", "two_questions"])
def test_r2_a_verdict_is_read_behind_the_thought(form: str) -> None:
    spec = talk(
        {"name": "Ann", "task": "Dig.", "checks_completion": True},
        "Bob",
        rounds=3,
        judge={"form": form},
        end_chat={"mode": "end_chat_after_first_completion"},
    )
    no = "<think>yes</think>"
    answers = {
        "structured": [f'{no}{{"objectives_left": [], "complete": true}}'],
        "two_questions": [f"{no}Nothing.", f"<think>{THOUGHT} no</think>Yes, it is."],
    }[form]
    result, prompts = play(spec, "I dig.", *answers)
    assert outcome_of(result).reason == "completed"
    assert THOUGHT not in heard(prompts)
    assert [cause.kind for cause in result.why()] == ["thought", "verdict", "reason"]


def test_r2_a_yes_in_a_thought_completes_nothing() -> None:
    spec = talk(
        {"name": "Ann", "task": "Dig.", "checks_completion": True},
        "Bob",
        judge={"kind": "separate", "criteria": ["It is dug."], "form": "lines"},
        end_chat={"mode": "end_chat_after_first_completion"},
    )
    unmet = "<think>1: met\n</think>1: not met"
    result, _ = play(spec, "I dig.", unmet, "Go on.", unmet)
    assert outcome_of(result).reason == "max_iterations"


END = "<|im_end|>"


@pytest.mark.parametrize("end", [END, "</s>", "<|eot_id|>\n", f"{END}{END}"])
@pytest.mark.parametrize("form", ["structured", "two_questions"])
def test_r2_control_tokens_at_the_end_are_read_by_nothing(end: str, form: str) -> None:
    when = {"kind": "done_token", "token": "STOP"}
    spec = talk(
        {"name": "Ann", "task": "Dig.", "checks_completion": True},
        {"name": "Bob", "format": {"kind": "code", "required": True}},
        rounds=3,
        judge={"form": form},
        end_chat={"mode": "end_chat_after_first_completion", "when": when},
    )
    code, verdicts = (
        "```python\nx = 1\n```",
        {
            "structured": ['{"objectives_left": ["x"], "complete": false}'],
            "two_questions": ["A hole.", "No"],
        }[form],
    )
    said = ["I dig.", *verdicts, f"So:\n{code}", "STOP"]
    result, prompts = play(spec, *(f"{one}{end}" for one in said))
    assert outcome_of(result).reason == "done_token"
    assert [one for one in result.messages if "<" in one.text] == []
    assert result.parsed("Bob")[0][0]["action"] == "x = 1"
    assert "<" not in heard(prompts)


def test_r2_control_tokens_that_are_talked_about_are_said() -> None:
    for text in (f"It ends with `{END}`.", f"{END} ends it.", f"Write:\n```\n{END}\n```"):
        result, prompts = play(talk(), text, "I see.")
        assert result.transcript[0] == ("Ann", text)
        assert END in heard(prompts[1:])


def test_r2_a_moderator_who_thinks_is_read() -> None:
    spec = talk(
        *({"name": name} for name in ("Ann", "Bob", "Cid")),
        turn_order={"kind": "moderator", "form": "word"},
    )
    result, _ = play(spec, "I begin.", "<think>Bob? No.</think>Cid", "I go on.", "Bob", "Fine.")
    assert [name for name, _ in result.transcript][:2] == ["Ann", "Cid"]


def test_r2_a_task_is_specified_without_its_thought() -> None:
    spec = talk(task_specification={"word_limit": 9})
    result, prompts = play(spec, f"<think>{THOUGHT}</think>Plan beans.", "Yes.", "Fine.")
    assert result.specified_task == "Plan beans."
    assert THOUGHT not in heard(prompts)


def test_r2_a_summary_is_kept_without_its_thought() -> None:
    context = {"kind": "summary", "limit": 200, "words": 20}
    spec = talk({"name": "Ann", "context": context}, "Bob", rounds=6)

    def answer(prompt: Prompt) -> Line:
        if "summar" in str(prompt).lower():
            return f"<think>{THOUGHT}</think>They talk."
        return f"Plant {len(str(prompt))} more beans, of another kind than before, by that wall."

    model = ScriptedChatModel(script=answer)
    result = converse(spec, model=model, store="memory:")
    summaries = of_kind(result.messages, "summary")
    assert summaries
    assert {one.text for one in summaries} == {"They talk."}
    assert THOUGHT not in heard([call.prompt for call in model.calls])


class Beans(BaseModel):
    """A number of beans."""

    beans: int


# Within a turn's tool loop a thought goes back, unchanged.


@tool
def look(place: str) -> str:
    """Look somewhere."""
    return f"Nothing in {place}."


def call(number: int, text: str = "", **fields: Any) -> Reply:
    made = ScriptedToolCall(name="look", args={"place": "it"}, id=f"c{number}")
    return Reply(text=text, tool_calls=(made,), **fields)


LOOKS = {"name": "Ann", "tools": ["look"]}


@pytest.mark.part(1)
@pytest.mark.parametrize("before", ["", "I look.\n"])
@pytest.mark.parametrize(
    "thought",
    [f"<think>\n{THOUGHT}\n</think>\n\n", f"{THOUGHT}</think>", f"<thinking>{THOUGHT}</thinking> "],
)
def test_r2_a_thought_in_the_text_goes_back_while_the_turn_lasts(thought: str, before: str) -> None:
    written = f"{thought}{before}"
    result, prompts = play(
        talk(LOOKS, "Bob", rounds=2),
        *(call(1, written), call(2), "Nothing.", "Fine.", call(3), "Still nothing.", "Bye."),
        tools=[look],
    )
    for prompt in prompts[1:3]:
        assert next(one for one in prompt if one.get("tool_calls"))["content"] == written
    # After the turn no thought is sent any more, and no other speaker ever gets one.
    assert THOUGHT not in heard([*prompts[:1], *prompts[3:]])
    assert result.transcript[-1] == ("Bob", "Bye.")


def test_r2_hooks_functions_and_people_see_no_thought() -> None:
    seen: list[str] = []

    def note(turn: Turn, *rest: Any) -> None:
        seen.append(repr((turn, rest)))

    spec = talk(LOOKS | {"hooks": ["note"]}, {"name": "Bob", "hooks": ["note"]})
    hook = Hook(before_speaker=note, after_speaker=note, before_tool=note, after_tool=note)
    script = (call(1, f"<think>{THOUGHT}</think>"), WAYS["tags"], WAYS["unopened"])
    result, _ = play(spec, *script, tools=[look], hooks={"note": hook})
    assert thoughts(result) == [THOUGHT, THOUGHT]
    assert len(seen) >= 6
    assert THOUGHT not in str(seen)


def test_r2_what_people_and_functions_say_is_never_split() -> None:
    text = f"<think>{THOUGHT}</think>Ready."
    spec = talk(
        {"name": "Ann", "replies": [{"kind": "human"}]},
        {"name": "Bob", "replies": [{"kind": "function", "name": "same"}]},
    )
    result = converse(
        spec,
        model=ScriptedChatModel(script=[]),
        store="memory:",
        answer=lambda question: text,
        functions={"same": lambda turn: text},
    )
    assert [said for _, said in result.transcript] == [text, text]


@pytest.mark.parametrize("way", ["schema", "native"])
def test_r2_a_call_that_is_held_to_a_schema_is_read_behind_the_thought(way: str) -> None:
    spec = talk(LOOKS | {"tool_calling": way}, "Bob")
    asked = f'<think>{THOUGHT}</think>{{"tool": "look", "arguments": {{"place": "it"}}}}'
    said = f'{THOUGHT}</think>{{"reply": "Nothing."}}'
    script = (
        [asked, said] if way == "schema" else [call(1, f"<think>{THOUGHT}</think>"), "Nothing."]
    )
    result, prompts = play(spec, *script, "Fine.", tools=[look])
    assert result.transcript == [("Ann", "Nothing."), ("Bob", "Fine.")]
    assert len(prompts) == 3
    assert THOUGHT not in heard(prompts[2:])


def test_r2_an_answer_that_is_held_to_a_schema_is_read_behind_the_thought() -> None:
    form = {"kind": "schema", "name": "plan", "form": "structured"}
    spec = talk({"name": "Ann", "format": form}, "Bob")
    said = '<think>{"beans": 1}</think>{"beans": 2}'
    result, _ = play(spec, said, "Fine.", schemas={"plan": Beans})
    assert result.parsed("Ann") == [{"beans": 2}]


# Display of thoughts.


def events(*script: Line, spec: Conversation | None = None, **options: Any) -> list[Event]:
    model = ScriptedChatModel(script=[*script])
    return [*stream(spec or talk(), model=model, store="memory:", **options)]


@pytest.mark.part(3)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 100])
def test_r2_a_thought_is_an_event_in_front_of_the_tokens(way: str, size: int) -> None:
    text = WAYS[way].text
    chunks = tuple(text[at : at + size] for at in range(0, len(text), size))
    found = events(WAYS[way].model_copy(update={"chunks": chunks}), "Fine.")
    assert [one.text for one in found if isinstance(one, ThoughtReceived)] == [THOUGHT]
    assert tokens_by_message(found) == ["Ready.", "Fine."]
    kinds = [one.event for one in found]
    assert kinds.index("thought") < kinds.index("message")
    assert "message_start" in kinds[kinds.index("thought") : kinds.index("message")]
    if "unopened" not in way:
        assert THOUGHT.split()[0] not in "".join(
            one.text for one in found if isinstance(one, MessageToken)
        )


def test_r2_once_a_thought_came_unopened_nothing_of_the_next_is_told() -> None:
    script = (WAYS["unopened"], "Fine.", WAYS["unopened"], "Bye.")
    found = events(*script, spec=talk(rounds=2))
    tokens = "".join(one.text for one in found if isinstance(one, MessageToken))
    assert tokens.count("secret") == 1
    assert tokens_by_message(found) == ["Ready.", "Fine.", "Ready.", "Bye."]


@pytest.mark.part(3)
@pytest.mark.parametrize(
    "said", ["###STOP###", "Thank you! ###STOP###", "Thank you!\n\n**###STOP###**\n", "So. ###S"]
)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("end", ["", "<|im_end|>", "</s> <|eot_id|>"])
def test_r2_a_done_token_is_never_told(said: str, size: int, end: str) -> None:
    when = [{"kind": "done_token", "token": "###STOP###"}]
    whole = said + end
    chunks = tuple(whole[at : at + size] for at in range(0, len(whole), size))
    spec = talk(end_chat={"when": when, "allow_unanswered_end": True})
    found = events(Reply(text=whole, chunks=chunks), "Fine.", spec=spec)
    message = next(one for one in found if isinstance(one, MessageSaid))
    assert message.text == said
    assert tokens_by_message(found)[0] == (
        message.text if message.heard_text is None else message.heard_text
    )
    tokens = "".join(one.text for one in found if isinstance(one, MessageToken))
    assert "STOP" not in tokens
    assert "<" not in tokens


def test_r2_a_thought_is_shown_in_exports_but_in_nobodys_memory() -> None:
    store = "memory:exports"
    result, _ = play(talk(), WAYS["tags"], "Fine.", store=store, session="one")
    # It did not cause the end, and no message contains it.
    assert [cause.kind for cause in result.why()] == ["reason"]
    stored = {"duologue", "duologue_place"}
    assert all(one.additional_kwargs.keys() <= stored for one in result.messages)
    assert not any("secret" in str(one.content) for one in result.messages)
    page = Session("one", store=store).export(format="markdown")
    assert page.count(THOUGHT) == 1
    lines = Session("one", store=store).export(format="jsonl").splitlines()
    assert [json.loads(one).get("thought") for one in lines].count(THOUGHT) == 1
    for name in ("Ann", "Bob"):
        for form in ("markdown", "jsonl"):
            memory = Session("one", store=store).export(format=form, speaker=name)
            assert THOUGHT not in memory


SCRIPT = (
    *(call(1, f"<think>{THOUGHT}</think>I look.", reasoning="Where?"), WAYS["field"]),
    *("<think>Hm", WAYS["unopened"]),
)


def test_r2_a_session_with_thoughts_is_dumped_loaded_and_forked(tmp_path: Path) -> None:
    store, other = f"memory:{tmp_path.name}", f"memory:{tmp_path.name}-other"
    spec = talk(LOOKS, "Bob")
    first, _ = play(spec, *SCRIPT, tools=[look], store=store, session="one")
    assert thoughts(first) == [THOUGHT, THOUGHT]
    load_session(Session("one", store=store).dump(), store=other)
    loaded = Session("one", store=other).state()
    assert thoughts(loaded) == [THOUGHT, THOUGHT]
    assert [cause.text for cause in loaded.why()] == [cause.text for cause in first.why()]
    Session("one", store=other).fork(at="m0003", into="two")
    forked = Session("two", store=other).state()
    assert thoughts(forked) == [THOUGHT]


def test_r2_a_session_that_waits_within_a_turn_goes_on_with_its_thought() -> None:
    spec, store = talk(LOOKS, "Bob"), "memory:waits"
    script: list[Line] = [call(1, f"<think>{THOUGHT}</think>"), RuntimeError("gone")]
    with pytest.raises(Exception, match="gone"):
        converse(
            spec, model=ScriptedChatModel(script=script), store=store, session="one", tools=[look]
        )
    model = ScriptedChatModel(script=["Nothing.", "Fine."])
    converse(spec, model=model, store=store, session="one", tools=[look])
    assert THOUGHT in heard([model.calls[0].prompt])
    assert THOUGHT not in heard([model.calls[1].prompt])


def test_r2_the_command_line_shows_thoughts_on_request(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    isolate(monkeypatch, tmp_path)
    (tmp_path / "talk.json").write_text(json.dumps(talk().stored()))
    script = [WAYS["tags"], WAYS["unopened"]]
    with ScriptedServer(script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        ran = duologue("run", "talk.json", "--session", "one")
    assert ran.exit_code == 0
    assert THOUGHT not in ran.stdout
    assert "\nAnn:\nReady.\n\nBob:\nReady.\n" in ran.stdout
    assert THOUGHT not in duologue("show", "one").stdout
    assert THOUGHT not in duologue("show", "one", "--as", "Ann").stdout
    shown = duologue("show", "one", "--thoughts").stdout
    assert f"(Ann thinks:)\n{THOUGHT}\n\nAnn (m0001):\nReady.\n" in shown
    refused = duologue("show", "one", "--thoughts", "--as", "Ann")
    assert (refused.exit_code, "leave out --as" in refused.stderr) == (2, True)
    assert THOUGHT not in duologue("show", "one", "--why").stdout
    told = [json.loads(one) for one in duologue("show", "one", "--json").stdout.splitlines()]
    assert [one["event"] for one in told] == ["thought", "message"] * 2 + ["outcome"]
    assert THOUGHT in duologue("export", "one").stdout


def test_r2_an_older_session_keeps_what_it_says(tmp_path: Path) -> None:
    store, text = f"memory:{tmp_path.name}", WAYS["tags"].text
    play(talk(), "Ready.", "Fine.", store=store, session="one")
    dumped = json.dumps(Session("one", store=store).dump())
    load_session(json.loads(dumped.replace('"Ready."', json.dumps(text))), store=f"{store}-2")
    old = Session("one", store=f"{store}-2").state()
    assert old.transcript[0] == ("Ann", text)
    assert text in str(old.viewpoint("Bob")[1].content)
