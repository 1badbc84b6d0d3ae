"""Row A2: people as speakers, as data that survives every file format, and its errors."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from duologue.graphs import Conversation, SpecError, chat, converse, load_conversation, user_proxy
from duologue.nodes.testing import ScriptedChatModel
from support.tables import read_rows

texts = st.text(
    st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=9
).filter(lambda text: bool(text.strip()))
marks = st.sampled_from(["TERMINATE", "Enough.", "<over>"])
people = st.fixed_dictionaries(
    {"kind": st.just("human")},
    optional={
        "human_input_mode": st.sampled_from(["ALWAYS", "TERMINATE", "NEVER", "never"]),
        "max_consecutive_auto_reply": st.integers(0, 999),
        "termination": marks,
        "is_termination": st.just("over"),
        "sees_calls": st.booleans(),
    },
)
first = st.fixed_dictionaries({"kind": st.just("text"), "text": texts, "once": st.just(True)})
behind = st.tuples(
    st.lists(st.sampled_from(["code", {"kind": "function", "name": "f"}]), max_size=2),
    st.sampled_from(["model", {"kind": "text", "text": "Go on."}]),
).map(lambda two: [*two[0], two[1]])


@st.composite
def talks(draw: st.DrawFn) -> Conversation:
    speakers = []
    for name in ("Ann", "Bob", "Cy")[: draw(st.integers(2, 3))]:
        one = [draw(people)] if draw(st.booleans()) else []
        replies = [*([draw(first)] if draw(st.booleans()) else []), *one, *draw(behind)]
        speakers.append({"name": name, "replies": replies})
    # At least one, so that neither a task nor a cap is needed.
    speakers[0]["replies"] = [draw(people), *draw(behind)]
    return load_conversation(
        {
            "task": draw(st.none() | texts),
            "speakers": speakers,
            "end_chat": {"max_iterations": draw(st.none() | st.integers(1, 9))},
        }
    )


@settings(max_examples=60, deadline=None)
@given(conversation=talks())
def test_people_survive_dict_json_and_toml(conversation: Conversation) -> None:
    """A2: people, and an absent cap on rounds, survive every format, although TOML has no null."""
    assert load_conversation(conversation.model_dump(mode="json")) == conversation
    assert load_conversation(conversation.stored()) == conversation
    assert Conversation.model_validate_json(conversation.model_dump_json()) == conversation
    with TemporaryDirectory() as folder:
        for name, text in (
            ("talk.toml", conversation.to_toml()),
            ("talk.json", json.dumps(conversation.stored())),
        ):
            file = Path(folder) / name
            file.write_text(text, encoding="utf-8", newline="")
            assert load_conversation(file) == conversation


SHORT = {
    "chat": ('kind = "chat"\n', chat()),
    "chat-told": ('kind = "chat"\nmessage = "Hello."\n', chat("Hello.")),
    "A5": (
        'kind = "user_proxy"\nmessage = "6 * 7?"\nhuman_input_mode = "terminate"\n'
        'max_consecutive_auto_reply = 0\ndefault_auto_reply = ""\nis_termination = "over"\n',
        user_proxy(
            "6 * 7?",
            human_input_mode="TERMINATE",
            max_consecutive_auto_reply=0,
            default_auto_reply=None,
            is_termination="over",
        ),
    ),
}


@pytest.mark.parametrize(("text", "expected"), SHORT.values(), ids=SHORT)
def test_short_forms_mean_the_same_in_a_file(text: str, expected: Conversation) -> None:
    Path("talk.toml").write_text(text)
    assert load_conversation("talk.toml") == expected


Replies = list[object]


def talk(replies: Replies, **fields: object) -> dict[str, Any]:
    speakers = [{"name": "Ann"}, {"name": "Bob", "replies": replies}]
    return {"task": "Plan", "speakers": speakers} | fields


BAD: list[tuple[dict[str, Any], list[str]]] = [
    *read_rows(__file__, "what_is_wrong_with_people"),
    (
        {"kind": "user_proxy", "message": "6 * 7?", "is_termination": lambda messages: True},
        ["is_termination: ", "a lambda has no name"],
    ),
]


@pytest.mark.parametrize(("given", "words"), BAD, ids=[" ".join(words)[:50] for _, words in BAD])
def test_what_is_wrong_is_one_sentence_that_names_the_field(
    given: dict[str, Any], words: list[str]
) -> None:
    """An error about people is raised before any model is called."""
    with pytest.raises(SpecError) as caught:
        converse(given, store="memory:", model=ScriptedChatModel(script=[]))
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert len(sentence) < 400
    for word in words:
        assert word in sentence


GOOD: dict[str, Replies] = read_rows(__file__, "good")


@pytest.mark.parametrize("replies", GOOD.values(), ids=GOOD)
def test_a_person_or_a_first_message_says_what_it_is_about(replies: Replies) -> None:
    """No task is needed, and no cap on rounds if a person takes part in every round."""
    found = load_conversation(talk(replies, task=None))
    assert found.task is None
    has_person = "human" in replies
    for cap in (None, "none"):
        end_chat = {"max_iterations": cap}
        if has_person:
            assert (
                load_conversation(talk(replies, end_chat=end_chat)).end_chat.max_iterations is None
            )
    assert found.is_bounded_by_people is has_person


def test_a_predicate_that_nobody_registered_is_named_before_a_model_is_called() -> None:
    """A6: the error names the predicate that is not registered."""
    talk = user_proxy("6 * 7?", is_termination="over", code=False)
    with pytest.raises(SpecError, match=r"speakers\.0\.replies\.1\.is_termination: .* 'over'"):
        converse(
            talk,
            store="memory:",
            model=ScriptedChatModel(script=[]),
            predicates={"other": lambda said: True},
        )
