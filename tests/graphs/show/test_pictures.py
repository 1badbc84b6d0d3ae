"""A diagram of a conversation shows exactly its possible transitions."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from duologue.graphs import (
    AgentReply,
    Conversation,
    DoneToken,
    EndChatMode,
    HumanReply,
    MaxMessages,
    Predicate,
    PrivateOpening,
    Speaker,
    SpecError,
    ToolCalled,
    blogger,
    chat,
    coder,
    draw,
    role_play,
    user_proxy,
)
from oracle.paths import TurnWalk
from support.tables import read_rows

NAMES = ("Ann", "Bob", "Cid", "Dot")
DONE = DoneToken(token="DONE", by="Bob")  # noqa: S106
WON = Predicate(name="won")


def talk(mode: str, cap: int = 3, count: int = 2, **fields: Any) -> Conversation:
    end_chat = {"mode": mode, "max_iterations": cap, "when": fields.pop("when", None)}
    end_chat |= {"min_iterations": fields.pop("least", 0)}
    stoppers = fields.pop("stoppers", NAMES)
    secret = PrivateOpening(prompt="Choose a number.")
    speakers = [
        Speaker(
            name=name,
            task="Dig.",
            checks_completion=name in stoppers,
            private_opening=secret if name in fields.get("secretive", ()) else None,
        )
        for name in NAMES[:count]
    ]
    fields.pop("secretive", None)
    return Conversation(task="Plan.", speakers=speakers, end_chat=end_chat, **fields)


def arrows(conversation: Conversation) -> set[str]:
    """Return the arrows of a drawing, such as "Ann > judge of Ann: no"."""
    names: dict[str, str] = {}
    found = set[str]()
    for line in draw(conversation).splitlines():
        if node := re.fullmatch(r' *(n\d+)\W+"(.+)"\W+:::\w+', line):
            names[node[1]] = _short(_decoded(node[2]).split("<br/>"))
        elif arrow := re.fullmatch(r' *(n\d+) -->(?:\|"(.+)"\|)? (n\d+)', line):
            start, when, to = arrow.groups("")
            found |= {
                f"{names[start]} > {names[to]}: {one}" for one in _decoded(when).split(" or ")
            }
    return found


def _short(label: list[str]) -> str:
    """Return a short name of a node."""
    first, *more = label
    if first.startswith("Is the task of "):
        return f"judge of {first.split()[4]}"
    if first in ("Tools", "Sandbox"):
        return f"{first}: {', '.join(more)}"
    stages = ("in private", "opening, on its own task", "last words")
    return f"{first} {more[0].split(',')[0]}" if more and more[0] in stages else first


def _decoded(text: str) -> str:
    return re.sub(r"#(\d+);", lambda code: chr(int(code[1])), text)


HANDOFF = {"kind": "handoff", "to": {"Ann": ["Bob", "Cid"], "Bob": ["Ann"], "Cid": ["Cid"]}}

DRAWN = {
    "one round": talk("max_iterations_only", 1),
    "role play": role_play("Plan", "Ann", "Bob", max_iterations=7),
    "blogger": blogger("Bees", rounds=1),
    "coder": coder("Count", executions=9),
    "chat": chat(tools=["clock", "shell"], interrupt_on={"shell": True}),
    "user proxy": user_proxy("Go.", human_input_mode="NEVER", code=False),
    "task is checked": talk("end_chat_after_first_completion", stoppers=["Ann"], when=DONE & WON),
    "separate judge": talk(
        "one_last_chat_after_first_completion",
        stoppers=["Ann"],
        judge={"criteria": ["They agree."]},
    ),
    "handoff": talk(
        "end_chat_after_first_completion",
        2,
        3,
        turn_order={
            "kind": "handoff",
            "to": {"Ann": ["Bob", "Cid"], "Bob": ["Ann"], "Cid": ["Cid"]},
        },
        stoppers=["Cid"],
    ),
    "concurrent": talk(
        "max_iterations_only",
        9,
        turn_order="concurrent",
        stoppers=[],
        when=DoneToken(token="DONE", by="Ann") | MaxMessages(limit=3),  # noqa: S106
    ),
}


@pytest.mark.parametrize("name", DRAWN)
def test_only_what_a_conversation_can_do_is_drawn(name: str) -> None:
    assert arrows(DRAWN[name]) == {*read_rows(__file__, "drawn")[name]}


def test_a_tool_that_ends_it_leads_to_the_end() -> None:
    speakers = [Speaker(name="Ann", tools=["buy", "look"]), Speaker(name="Bob")]
    end_chat = {"when": ToolCalled(tool="buy"), "max_iterations": None}
    talk = Conversation(task="Go.", speakers=speakers, end_chat={**end_chat, "max_iterations": 2})
    assert "Tools: buy, look > The end: buy was called" in arrows(talk)
    assert not any("Bob > Tools" in arrow for arrow in arrows(talk))


def conversations() -> Iterator[Conversation]:
    for mode in EndChatMode:
        # In a single round, only the last of several speakers can complete the last task.
        for cap in (1 + (mode is EndChatMode.ALL_TASK_MUST_COMPLETE), 3):
            yield talk(mode, cap, when=DONE)
            yield talk(mode, cap, stoppers=["Bob"], opening={"answers": True}, secretive=["Ann"])
        yield talk(mode, 2, 3, opening={"first_speaker": "Cid"})
        yield talk(mode, 3, least=2)
        yield talk(mode, 2, 4)
        yield talk(mode, 9, 2, when=MaxMessages(limit=3))


@pytest.mark.part(3)
@pytest.mark.parametrize("conversation", [*conversations()])
def test_each_turn_that_may_follow_another_is_drawn_and_no_other(
    conversation: Conversation,
) -> None:
    assert _turns(conversation) == TurnWalk(conversation).pairs


def _turns(conversation: Conversation) -> set[tuple[str, str]]:
    """Return the drawn pairs of consecutive turns, without the judges between them."""
    pairs = [arrow.partition(": ")[0].split(" > ") for arrow in arrows(conversation)]
    found = set()
    for start, to in pairs:
        if not start.startswith("judge"):
            ends = [end for judge, end in pairs if judge == to] if to.startswith("judge") else [to]
            found |= {(start, end) for end in ends}
    return found


def test_who_chooses_leads_to_those_who_may_be_chosen() -> None:
    moderated = talk("max_iterations_only", 2, 3, turn_order={"kind": "moderator"})
    chosen = {arrow for arrow in arrows(moderated) if arrow.startswith("Moderator >")}
    assert chosen == {f"Moderator > {name}: " for name in NAMES[:3]}
    pair = talk("max_iterations_only", 2, 2, turn_order={"kind": "function", "name": "f"})
    assert "f() > Bob: " in arrows(pair)


@pytest.mark.exhaustive
def test_many_speakers_are_drawn_at_once() -> None:
    many = Conversation(
        task="Vote.",
        speakers=[{"name": f"S{number}", "checks_completion": True} for number in range(20)],
        end_chat={"mode": "all_task_must_complete", "max_iterations": 1000},
    )
    drawn = arrows(many)
    assert {f"judge of S{number} > The end: yes" for number in range(20)} <= drawn
    assert {"S19 > The end: 1,000 rounds", "S7 > S8: "} <= drawn


def test_names_and_words_are_no_mermaid() -> None:
    hostile = '"]; click n0 "javascript:alert(1)" %% <script>\x1b[2J'
    talk = Conversation(
        task="Go.",
        speakers=[{"name": "A <b>#35;"}, {"name": "B"}],
        end_chat={"when": DoneToken(token=hostile[:40])},
    )
    text = draw(talk)
    assert 'n1("A #60;b#62;#35;35#59;<br/>a model"):::speaker' in text
    quoted = [line for line in text.splitlines() if "says" in line]
    assert len(quoted) == 2
    for sign in ("<", ">", "\x1b", "]", ";click", "%%"):
        assert sign not in quoted[0].partition("|")[2].rpartition("|")[0]


@pytest.mark.exhaustive
def test_pictures_are_written_by_the_name_of_the_file(tmp_path: Path) -> None:
    pytest.importorskip("mermaidx")
    garden = role_play("Plan", "Cook & Co", "Gärtner")
    text = draw(garden, tmp_path / "a.mmd")
    assert (tmp_path / "a.mmd").read_text(encoding="utf-8") == text
    draw(garden, tmp_path / "a.MD")
    assert (tmp_path / "a.MD").read_text(encoding="utf-8") == f"```mermaid\n{text}```\n"
    draw(garden.model_dump(), tmp_path / "a.svg")
    svg = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert "Gärtner" in svg
    assert "Cook &amp; Co" in svg
    assert "<script" not in svg
    draw(garden, str(tmp_path / "a.png"))
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_what_can_not_be_drawn_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    garden = role_play("Plan", "Cook", "Gardener")
    with pytest.raises(SpecError, match=r"a\.gif: unknown format; end the name in '.svg', "):
        draw(garden, tmp_path / "a.gif")
    with pytest.raises(SpecError, match=r"can't be written: No such file"):
        draw(garden, tmp_path / "no" / "a.mmd")
    monkeypatch.setitem(sys.modules, "mermaidx", None)
    with pytest.raises(SpecError, match=r"a\.svg: .* run `pip install '\.\[pictures\]'`"):
        draw(garden, tmp_path / "a.svg")


def test_the_least_number_of_rounds_is_drawn() -> None:
    label = "The end<br/>after 2 rounds or more<br/>or at any time:"
    assert label in draw(talk("max_iterations_only", least=2))
    assert "or more" not in draw(talk("max_iterations_only"))


def test_a_person_is_drawn_as_one_only_where_one_is_asked() -> None:
    person = Speaker(name="Ann", replies=[HumanReply(human_input_mode="NEVER"), "model"])
    never = Conversation(task="Go.", speakers=[person, Speaker(name="Bob")])
    assert 'n1("Ann<br/>a model"):::speaker' in draw(never)
    always = role_play("Go.", "Ann", "Bob", people=["Ann"], specify_task=False)
    assert 'n1("Ann<br/>a person"):::person' in draw(always)


GIVERS = {
    "human": "a person",
    "function": "a function",
    "agent": "an agent",
    "conversation": "an inner conversation",
    "code": "code that it runs",
    "model": "a model",
    "text": "a text",
}


def test_whatever_may_give_replies_is_drawn() -> None:
    schema = Speaker.model_json_schema()["properties"]["replies"]["items"]
    assert schema["discriminator"]["mapping"].keys() == GIVERS.keys()
    for kind, told in GIVERS.items():
        inner = {"task": "Sow.", "speakers": [{"name": "Cat"}, {"name": "Dan"}]}
        needed: dict[str, dict[str, Any]]
        needed = {"function": {"name": "f"}, "agent": {"name": "f"}, "text": {"text": "Yes."}}
        needed["conversation"] = {"conversation": inner}
        reply = {"kind": kind} | needed.get(kind, {})
        pair: list[dict[str, Any]] = [{"name": "Ann", "replies": [reply]}, {"name": "Bob"}]
        drawn = draw(Conversation(task="Go.", speakers=pair))
        assert f'n1("Ann<br/>{told}")' in drawn


def test_an_agent_may_say_the_word_that_ends_it() -> None:
    agent = Speaker(name="Bob", replies=[AgentReply("gardener")])
    talk = Conversation(task="Go.", speakers=[{"name": "Ann"}, agent], end_chat={"when": DONE})
    assert "Bob > The end: says DONE" in arrows(talk)
