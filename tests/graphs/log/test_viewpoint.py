"""A speaker's view of the log: properties for any log, and for logs of real runs."""

import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    InvalidToolCall,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.tool import tool_call

from duologue.graphs import Conversation, Speaker
from support.cases import drawn_cases
from support.log import KINDS, Failure, fields_of, make_line, make_tool_line
from support.results import StoredSession
from support.shape_help import well_formed
from support.spec_help import letters, look

ODD = [
    *(
        "Ann",
        "Bob",
        "Stock Trader",
        "Stock_Trader",
        "Stock-Trader",
        "Stock Trader!",
        "Stock, Trader",
    ),
    *(
        "Zoë",
        "Zo",
        "Zo_",
        "李雷",
        "韩梅梅",
        "speaker_1",
        "speaker 2",
        "_",
        "!!",
        "🎲",
        "a.b",
        "a b",
    ),
    *("N" * 80, "N" * 79, "N" * 60, "N" * 56 + "_2", "N" * 56 + "_3", "N" * 56 + " 4"),
]
NAMES = st.lists(
    st.one_of(st.sampled_from(ODD), st.text("aAb _-.é李", min_size=1, max_size=80)),
    min_size=2,
    max_size=5,
    unique_by=(letters, look),
).filter(lambda names: all(name.strip() for name in names))


def talk(names: Sequence[str], *, keep: Sequence[str] = ()) -> Conversation:
    return Conversation(
        task="Talk.",
        speakers=tuple(Speaker(name=name, keep_self_reflection=name in keep) for name in names),
    )


def no_json(call: str) -> InvalidToolCall:
    return InvalidToolCall(name="add", args="{a", id=call, error=None, type="invalid_tool_call")


SHOWN = [kind for kind in KINDS if kind not in ("memory_reset", "unheard_result")]


@st.composite
def any_log(draw: st.DrawFn) -> tuple[Conversation, list[AnyMessage]]:
    """Draw any log, including logs that no run can produce."""
    conversation = talk(draw(NAMES))
    who = st.sampled_from(conversation.names)
    audiences = st.one_of(st.none(), st.lists(who, max_size=3, unique=True).map(tuple))
    ids = st.sampled_from(["c1", "c2", "c3", "c4"])
    log: list[AnyMessage] = []
    for number in range(draw(st.integers(0, 12))):
        # A unique word identifies each message.
        text = draw(st.sampled_from(["", " \n", f"word{number}x", f" word{number}x\n\nand more "]))
        # A view does not contain the whole of a forgotten message.
        kind = draw(st.sampled_from(SHOWN))
        if kind == "tool_result":
            speaker = draw(who)
            log.append(
                make_tool_line(
                    number,
                    text,
                    speaker=speaker,
                    call_id=draw(ids),
                    failure=draw(st.sampled_from([None, *Failure])),
                )
            )
            continue
        is_told = kind in ("instruction", "judge_question", "specified_task", "earlier_end")
        fields: dict[str, Any] = {
            "speaker": None if is_told else draw(who),
            "audience": draw(audiences),
        }
        needed: dict[Any, dict[str, Any]]
        needed = {
            "earlier_end": {"outcome": {}},
            "inner_session": {"summary": "", "conversation": {}},
        }
        fields |= needed.get(kind, {})
        called = draw(st.lists(ids, max_size=3)) if kind == "tool_calls" else []
        calls = [tool_call(name="add", args={}, id=call) for call in called]
        bad = draw(st.lists(ids, max_size=1)) if kind == "tool_calls" else []
        broken = [no_json(call) for call in bad]
        log.append(
            make_line(number, text, kind, tool_calls=calls, invalid_tool_calls=broken, **fields)
        )
    return conversation, log


def audible(message: BaseMessage, name: str) -> bool:
    """Return whether a message's text belongs in a speaker's view."""
    about = fields_of(message)
    if about.speaker == name:
        if about.kind in ("opening_answer", "inner_session"):
            return False  # the view contains its own answer, or the result, already
        if about.kind in ("speech", "tool_calls"):
            return True
    return about.audience is None or name in about.audience


def words(text: str) -> list[str]:
    return re.findall(r"word\d+x", text)


def view_of(conversation: Conversation, log: Sequence[AnyMessage], name: str) -> list[BaseMessage]:
    """Return a speaker's view of a log, without the system prompt that comes first."""
    system, *view = StoredSession("s", conversation, [*log], None, None).viewpoint(name)
    assert isinstance(system, SystemMessage)
    return view


def provider_names(names: Sequence[str]) -> dict[str, str]:
    """Return the names under which speakers see their own messages."""
    conversation = talk(names)
    log = {name: [make_line(0, "Hi.", speaker=name)] for name in conversation.names}
    return {name: str(view_of(conversation, log[name], name)[0].name) for name in log}


@drawn_cases(20, 400, drawn=any_log())
def test_any_log_is_shown_whole_and_in_a_shape_that_providers_take(
    drawn: tuple[Conversation, list[AnyMessage]],
) -> None:
    """L3, Y17, Y20: roles, order and labels are right, and private messages are absent."""
    conversation, log = drawn
    before = deepcopy(log)
    for name in conversation.names:
        view = view_of(conversation, log, name)
        assert log == before
        assert view == view_of(conversation, log, name)
        well_formed(view)
        lines = [message for message in log if not isinstance(message, ToolMessage)]
        own: list[str] = []
        others: list[str] = []
        for message in lines:
            if audible(message, name):
                mine = fields_of(message).speaker == name
                (own if mine else others).extend(words(message.text))
        assert words(" ".join(m.text for m in view if isinstance(m, AIMessage))) == own
        assert words(" ".join(m.text for m in view if isinstance(m, HumanMessage))) == others
        shown = {word for m in view if isinstance(m, ToolMessage) for word in words(m.text)}
        mine_too = {
            word
            for m in log
            if isinstance(m, ToolMessage) and fields_of(m).speaker == name
            for word in words(m.text)
        }
        assert shown <= mine_too


@drawn_cases(20, 300, drawn=any_log())
def test_every_line_of_another_stands_in_a_paragraph_of_its_own_with_its_speaker(
    drawn: tuple[Conversation, list[AnyMessage]],
) -> None:
    """L3, Y20: others' messages are joined by a blank line, and labelled among three or more."""
    conversation, log = drawn
    for name in conversation.names:
        heard = []
        for message in log:
            about = fields_of(message)
            if isinstance(message, ToolMessage) or about.speaker == name:
                continue
            if not audible(message, name):
                continue
            if not message.text.strip() and about.kind == "tool_calls":
                continue
            marked = about.speaker is not None and len(conversation.names) > 2
            label = f"{about.speaker}: " if marked else ""
            if about.audience is not None and about.is_spoken and about.is_aloud:
                others = [one for one in about.confidants if one != name]
                label += f"(to {' and '.join(['you', *others])} only) "
            heard.append(label + (message.text.strip() or "(empty message)"))
        view = view_of(conversation, log, name)
        texts = [message.text for message in view if isinstance(message, HumanMessage)]
        assert "\n\n".join(texts) == "\n\n".join(heard)


@drawn_cases(20, 300, names=NAMES)
def test_names_sent_to_providers_are_valid_and_differ(names: list[str]) -> None:
    """L1: the display name and the name for the provider are separate."""
    mapped = provider_names(names)
    assert len({*mapped.values()}) == len(names)
    for plain in mapped.values():
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", plain)


@pytest.mark.timeout(20)
def test_names_that_collide_even_with_a_number_behind_them_get_another() -> None:
    long = "N" * 56
    names = [long + "abcd", long + "_3", long + "abcde", long + "_4", long + "abcdef"]
    assert len({*provider_names(names).values()}) == 5


@drawn_cases(20, 200, drawn=any_log())
def test_a_view_names_its_speakers_as_providers_take_it(
    drawn: tuple[Conversation, list[AnyMessage]],
) -> None:
    conversation, log = drawn
    names = provider_names(conversation.names)
    for name in conversation.names:
        for message in view_of(conversation, log, name):
            if isinstance(message, AIMessage):
                assert message.name == names[name]
            elif isinstance(message, HumanMessage):
                others = {names[other] for other in names if other != name}
                assert message.name is None or message.name in others


def views(conversation: Conversation, log: Sequence[AnyMessage], name: str) -> Iterator[str]:
    for message in view_of(conversation, log, name):
        yield f"{message.type}: {message.text}"


def test_others_hear_the_text_beside_a_call_and_not_the_call() -> None:
    """Y18: other speakers hear the text of a message, but not its calls and results."""
    conversation = talk(["Ann", "Bob"])
    call = tool_call(name="add", args={"a": 1}, id="c1")
    log = [
        make_line(0, "Let me see.", "tool_calls", speaker="Ann", tool_calls=[call]),
        make_tool_line(1, "secret 4", speaker="Ann", call_id="c1"),
        make_line(2, "Four.", speaker="Ann"),
    ]
    assert list(views(conversation, log, "Ann")) == [
        "ai: Let me see.",
        "tool: secret 4",
        "ai: Four.",
    ]
    assert list(views(conversation, log, "Bob")) == ["human: Let me see.\n\nFour."]


def test_calls_are_shown_once_they_have_results_and_once_for_each_id() -> None:
    conversation = talk(["Ann", "Bob"])
    calls = [tool_call(name="add", args={}, id="c1")]
    log = [
        make_line(0, "Go.", speaker="Bob"),
        make_line(1, "", "tool_calls", speaker="Ann", tool_calls=calls),
        make_tool_line(2, "4", speaker="Ann", call_id="c1"),
        make_line(3, "Again.", "tool_calls", speaker="Ann", tool_calls=calls),
        make_tool_line(4, "5", speaker="Ann", call_id="c1"),
    ]
    assert list(views(conversation, log[:2], "Ann")) == ["human: Go."]
    assert list(views(conversation, log[:3], "Ann")) == ["human: Go.", "ai: ", "tool: 4"]
    assert list(views(conversation, log, "Ann")) == ["human: Go.", "ai: ", "tool: 5", "ai: Again."]


def test_a_call_whose_arguments_are_no_json_is_told_to_its_caller() -> None:
    """Y19: the model gets the text back to correct its arguments."""
    conversation = talk(["Ann", "Bob"])
    log = [
        make_line(0, "Begin.", "instruction", audience=("Ann",)),
        make_line(1, "", "tool_calls", speaker="Ann", invalid_tool_calls=[no_json("c1")]),
        make_tool_line(
            2,
            "The arguments of add are not valid JSON.",
            speaker="Ann",
            call_id="c1",
            failure=Failure.CALL,
        ),
    ]
    view = view_of(conversation, log, "Ann")
    assert "not valid JSON" in view[-1].text


def test_nobody_sees_as_a_stranger() -> None:
    with pytest.raises(KeyError, match="no speaker is called 'Eve'"):
        view_of(talk(["Ann", "Bob"]), [], "Eve")
