"""Conversations of every shape survive every file format."""

import json
from pathlib import Path

import pytest
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage

from duologue.graphs import (
    BlockFormat,
    CodeFormat,
    Conversation,
    DoneToken,
    EndChatMode,
    Guards,
    LabelledFormat,
    MaxCalls,
    MaxMessages,
    MaxSeconds,
    MaxTokens,
    ModelSettings,
    Predicate,
    SchemaFormat,
    SpecError,
    StopRequested,
    TaskSpecification,
    load_conversation,
)
from support.cases import drawn_cases
from support.ends import End
from support.spec_help import as_toml, letters, look, minimal

# Conversations of every shape

texts = st.text(
    st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=20
).filter(lambda text: bool(text.strip()))
names = st.text(st.characters(codec="utf-8", categories=["L", "N", "P"]), min_size=1, max_size=10)
generations = st.builds(
    ModelSettings,
    temperature=st.none() | st.floats(0, 2),
    max_tokens=st.none() | st.integers(1, 9),
    top_p=st.none() | st.floats(0, 1, exclude_min=True),
    stop=st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=3), max_size=2
    ).map(tuple),
    seed=st.none() | st.integers(-(2**40), 2**40),
)
printable = st.text(
    st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), min_size=1, max_size=20
)
marks = st.builds(
    LabelledFormat,
    # No name begins with another.
    lines=st.tuples(printable.map("a{}".format))
    | st.tuples(printable.map("a{}".format), printable.map("b{}".format)),
    end=st.none() | printable.map("c{}".format),
)
verbatim = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)
formats = st.one_of(
    marks,
    st.builds(
        BlockFormat,
        begin=verbatim.map("<{}".format).filter(lambda text: "=" not in text),
        end=verbatim.map("{}=".format).filter(lambda text: "<" not in text),
        tool_type=st.none() | names,
        required=st.booleans(),
    ),
    st.builds(
        CodeFormat,
        languages=st.lists(st.sampled_from(["python", "C++", "sh"]), max_size=2).map(tuple),
        required=st.booleans(),
    ),
    st.builds(SchemaFormat, name=names, form=st.just("text")),
)

PRICED = "a model with a price"
counts = st.integers(0, 9)
price = st.fixed_dictionaries(
    {"input": st.floats(0, 100), "output": st.floats(0, 100)},
    optional={"cached_input": st.none() | st.floats(0, 100)},
)
judges = st.fixed_dictionaries(
    {"form": st.sampled_from(["structured", "two_questions"]), "temperature": st.floats(0, 2)}
) | st.fixed_dictionaries(
    {"kind": st.just("separate"), "criteria": st.lists(texts, min_size=1, max_size=3, unique=True)},
    optional={"prompt": texts, "form": st.sampled_from(["structured", "lines"])},
)
turn_orders = st.sampled_from(
    [
        {},
        {"kind": "round_robin"},
        {"kind": "function", "name": "by age"},
        {"kind": "moderator", "prompt": "Be fair.", "form": "word"},
        {"kind": "handoff", "field": "then", "private": True},
    ]
)
private_openings = st.fixed_dictionaries({"prompt": texts}) | st.fixed_dictionaries(
    {"lines": st.lists(texts, min_size=1, max_size=2)}
)

messages = st.builds(HumanMessage, texts, name=st.none() | names) | st.builds(AIMessage, texts)


def ends(called: list[str]) -> st.SearchStrategy[End]:
    """Draw ends of all kinds that any conversation may have, in all combinations."""
    anyone = st.none() | st.sampled_from(called)
    single: st.SearchStrategy[End] = st.one_of(
        st.builds(DoneToken, token=printable, by=anyone),
        st.builds(Predicate, name=names),
        st.builds(MaxMessages, limit=st.just(1)),
        st.builds(MaxCalls, limit=st.just(1), by=anyone),
        st.builds(MaxTokens, limit=st.integers(1, 1_000_000_000_000), by=anyone),
        st.builds(MaxSeconds, limit=st.floats(0.001, 1e9)),
        st.just(StopRequested()),
    )

    def joined(parts: st.SearchStrategy[End]) -> st.SearchStrategy[End]:
        return st.tuples(parts, parts).map(lambda two: two[0] | two[1]) | st.tuples(
            parts, parts
        ).map(lambda two: two[0] & two[1])

    return st.recursive(single, joined, max_leaves=5)


@st.composite
def conversations(draw: st.DrawFn) -> Conversation:
    called = draw(st.lists(names, min_size=2, max_size=4, unique_by=(letters, look)))
    shared_task = draw(st.none() | texts)
    answers = draw(st.booleans())
    stoppers = draw(st.sets(st.sampled_from(called)))
    # A price table must contain every model.
    prices = draw(st.just({}) | st.fixed_dictionaries({PRICED: price}))
    speakers = [
        {
            "name": name,
            "task": draw(texts) if shared_task is None or answers else draw(st.none() | texts),
            "system_prompt": draw(st.none() | texts),
            "checks_completion": name in stoppers,
            "keep_self_reflection": draw(st.booleans()),
            "format": draw(st.none() | formats),
            "tools": draw(st.lists(names, max_size=2, unique=True)),
            "model": draw(st.none() | texts) if not prices else PRICED,
            "private_opening": draw(st.none() | private_openings),
            "memory": draw(st.lists(messages, max_size=2)),
            "model_settings": draw(generations),
        }
        for name in called
    ]
    modes = list(EndChatMode) if stoppers else [EndChatMode.MAX_ITERATIONS_ONLY]
    anyone = st.none() | st.sampled_from(called)
    specification = st.none() | st.builds(
        TaskSpecification,
        word_limit=st.integers(1, 99),
        model=st.none() | texts if not prices else st.just(PRICED),
    )
    return Conversation.model_validate(
        {
            "title": draw(st.none() | texts),
            "task": shared_task,
            "speakers": speakers,
            "task_specification": draw(specification) if shared_task is not None else None,
            "opening": {
                "answers": answers,
                "first_speaker": draw(anyone),
                "first_line": draw(st.none() | texts),
            },
            "end_chat": {
                "mode": draw(st.sampled_from(modes)),
                "max_iterations": draw(st.integers(1, 99)),
                "when": draw(st.none() | ends(called)),
                "guards": draw(st.dictionaries(st.sampled_from(list(Guards.model_fields)), counts)),
            },
            "judge": draw(judges),
            "turn_order": draw(turn_orders),
            "prices": prices,
            "model": draw(st.none() | texts) if not prices else PRICED,
            "max_tool_rounds": draw(st.integers(1, 9)),
        }
    )


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\t\x0b\x85\u2028"])
def test_line_ends_of_every_kind_survive_toml(end: str) -> None:
    given = load_conversation(minimal(task=f"Plan{end}a{end}{end}garden{end}", model=f"m{end}"))
    Path("talk.toml").write_text(given.to_toml(), encoding="utf-8", newline="")
    assert load_conversation("talk.toml") == given


@drawn_cases(5, 50, conversation=conversations())
def test_a_conversation_survives_dict_json_and_toml(conversation: Conversation) -> None:
    whole = conversation.model_dump(mode="json")
    short = conversation.model_dump(mode="json", exclude_defaults=True)
    without_null = conversation.model_dump(mode="json", exclude_none=True)
    assert load_conversation(whole) == conversation
    assert load_conversation(short) == conversation
    assert Conversation.model_validate_json(conversation.model_dump_json()) == conversation
    file = Path("talk.json")
    file.write_text(json.dumps(whole), encoding="utf-8")
    assert load_conversation(file) == conversation
    for text in (as_toml(without_null), as_toml(short), conversation.to_toml()):
        file = Path("talk.toml")
        file.write_text(text, encoding="utf-8", newline="")
        assert load_conversation(str(file)) == conversation


@pytest.mark.parametrize("name", ["talk.toml", "talk.json"])
def test_a_file_may_begin_with_a_byte_order_mark(name: str) -> None:
    given = load_conversation(minimal())
    text = given.to_toml() if name.endswith("toml") else given.model_dump_json()
    Path(name).write_text(text, encoding="utf-8-sig")
    assert load_conversation(name) == given


def test_a_conversation_cannot_be_changed() -> None:
    conversation = load_conversation(minimal())
    with pytest.raises(SpecError, match=r"^task: a Conversation can't be changed"):
        conversation.task = "Other"  # type: ignore[misc]  # the point of the test
    with pytest.raises(SpecError, match=r"^name: a Speaker can't be changed"):
        conversation.speakers[0].name = "Cy"  # type: ignore[misc]  # the point of the test
    assert isinstance(conversation.speakers, tuple)


def test_a_dict_that_is_read_stays_as_it_was() -> None:
    given = {"kind": "role_play", "task": "Plan", "user_role": "A", "assistant_role": "B"}
    before = dict(given)
    assert load_conversation(given) == load_conversation(given)
    assert given == before
