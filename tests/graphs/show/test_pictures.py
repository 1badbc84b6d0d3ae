"""A diagram of a conversation shows exactly its possible transitions."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import oracle.paths
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
from duologue.graphs.rules.moves import BETWEEN_TURNS
from duologue.graphs.rules.position import Position
from duologue.graphs.rules.transitions import Decision, Node, decide
from duologue.graphs.show.conversation_paths import Kind, Place, ways
from oracle.paths import Choices, Walk

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
    """Return the arrows between places, by short names."""
    return {f"{_short(way.start)} > {_short(way.to)}: {way.when}" for way in ways(conversation)}


def _short(place: Place) -> str:
    return f"{place.kind.value} {place.speaker}" if place.speaker else place.kind.value


@pytest.mark.parametrize(
    ("conversation", "expected"),
    [
        (
            talk("max_iterations_only", 1),
            {"start > speaker Ann: ", "speaker Ann > speaker Bob: ", "speaker Bob > end: 1 round"},
        ),
        (
            role_play("Plan", "Ann", "Bob", max_iterations=7),
            {
                "start > task: ",
                "task > speaker Ann: ",
                "speaker Ann > end: says <CAMEL_TASK_DONE>",
                "speaker Ann > speaker Bob: ",
                "speaker Bob > speaker Ann: ",
                "speaker Bob > end: 7 rounds",
            },
        ),
        (
            blogger("Bees", rounds=1),
            {
                "start > speaker Writer: ",
                "speaker Writer > speaker Critic: ",
                "speaker Critic > end: says SATISFIED",
                "speaker Critic > speaker Writer: ",
                "speaker Writer > end: 3 messages",
            },
        ),
        (
            coder("Count", executions=9),
            {
                "start > speaker Coder: ",
                "speaker Coder > end: no code",
                "speaker Coder > end: 19 messages",
                "speaker Coder > speaker Executor: ",
                "speaker Executor > code Executor: the message contains code",
                "code Executor > speaker Executor: the output",
                "speaker Executor > speaker Coder: ",
            },
        ),
        (
            chat(tools=["clock", "shell"], interrupt_on={"shell": True}),
            {
                "start > speaker User: ",
                "speaker User > end: the person leaves",
                "speaker User > speaker Assistant: ",
                "speaker Assistant > tools Assistant: a person approves 'shell'",
                "tools Assistant > speaker Assistant: results",
                "speaker Assistant > speaker User: ",
            },
        ),
        (
            user_proxy("Go.", human_input_mode="NEVER", code=False),
            {
                "start > speaker User: ",
                "speaker User > speaker Assistant: ",
                "speaker Assistant > end: says TERMINATE",
                "speaker Assistant > end: 100 automatic replies",
                "speaker Assistant > speaker User: ",
            },
        ),
        (
            talk("end_chat_after_first_completion", stoppers=["Ann"], when=DONE & WON),
            {
                "start > speaker Ann: ",
                "speaker Ann > end: says DONE and won()",
                "speaker Ann > judge Ann: ",
                "judge Ann > end: yes",
                "judge Ann > speaker Bob: no",
                "speaker Bob > end: says DONE and won()",
                "speaker Bob > speaker Ann: ",
                "speaker Bob > end: 3 rounds",
            },
        ),
    ],
)
def test_only_what_a_conversation_can_do_is_drawn(
    conversation: Conversation, expected: set[str]
) -> None:
    assert arrows(conversation) == expected


def test_a_tool_that_ends_it_leads_to_the_end() -> None:
    speakers = [Speaker(name="Ann", tools=["buy", "look"]), Speaker(name="Bob")]
    end_chat = {"when": ToolCalled(tool="buy"), "max_iterations": None}
    talk = Conversation(task="Go.", speakers=speakers, end_chat={**end_chat, "max_iterations": 2})
    assert "tools Ann > end: buy was called" in arrows(talk)
    assert not any("Bob > tools" in arrow for arrow in arrows(talk))


def conversations() -> Iterator[Conversation]:
    for mode in EndChatMode:
        for cap in (1, 3):
            yield talk(mode, cap, when=DONE)
            yield talk(mode, cap, stoppers=["Bob"], opening={"answers": True}, secretive=["Ann"])
        yield talk(mode, 2, 3, opening={"first_speaker": "Cid"})
        yield talk(mode, 3, least=2)
        yield talk(mode, 2, 4)
        yield talk(mode, 9, 2, when=MaxMessages(limit=3))


@pytest.mark.part(3)
@pytest.mark.parametrize("conversation", [*conversations()])
def test_each_turn_that_may_follow_another_is_drawn_and_no_other(
    conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: set[tuple[Place, Place]] = set()

    def noted(conversation: Conversation, position: Position) -> Decision:
        turn = decide(conversation, position)
        if position.phase in BETWEEN_TURNS and turn.node is not Node.COMPLETION_JUDGE:
            start = Place(Kind.START)
            if position.speaker is not None:
                start = Place(Kind.SPEAKER, position.speaker, position.stage)
            to = Place(Kind.SPEAKER, turn.speaker, turn.stage)
            taken.add((start, Place(Kind.END) if turn.node is Node.END else to))
        return turn

    monkeypatch.setattr(oracle.paths, "decide", noted)
    Walk(conversation, Choices())
    assert _turns(conversation) == taken


def _turns(conversation: Conversation) -> set[tuple[Place, Place]]:
    """Return the drawn pairs of consecutive turns, without the judges between them."""
    drawn = [(way.start, way.to) for way in ways(conversation)]
    found = set()
    for start, to in drawn:
        if start.kind is Kind.JUDGE:
            continue
        behind = [end for judge, end in drawn if judge == to] if to.kind is Kind.JUDGE else [to]
        found |= {(start, end) for end in behind}
    return found


def test_who_chooses_leads_to_those_who_may_be_chosen() -> None:
    moderated = talk("max_iterations_only", 2, 3, turn_order={"kind": "moderator"})
    chosen = {arrow for arrow in arrows(moderated) if arrow.startswith("choice >")}
    assert chosen == {f"choice > speaker {name}: " for name in NAMES[:3]}
    pair = talk("max_iterations_only", 2, 2, turn_order={"kind": "function", "name": "f"})
    assert "choice > speaker Bob: " in arrows(pair)


def test_who_hands_over_leads_to_those_it_may_hand_over_to() -> None:
    order = {"kind": "handoff", "to": {"Ann": ["Bob", "Cid"], "Bob": ["Ann"], "Cid": ["Cid"]}}
    handed = talk("end_chat_after_first_completion", 2, 3, turn_order=order, stoppers=["Cid"])
    drawn = {
        "start > speaker Ann: ",
        "speaker Ann > speaker Bob: ",
        "speaker Ann > speaker Cid: ",
        "speaker Bob > speaker Ann: ",
        "speaker Bob > end: 2 rounds",
        "speaker Cid > judge Cid: ",
        "judge Cid > speaker Cid: no",
        "judge Cid > end: yes",
        "judge Cid > end: 2 rounds",
    }
    assert arrows(handed) == drawn
    # With two alternating speakers, odd and even numbers of turns end differently.
    for rounds, last in ((27, "Ann"), (28, "Bob")):
        ends = arrows(handed.replace(end_chat={"max_iterations": rounds}))
        assert f"speaker {last} > end: {rounds} rounds" in ends
        assert sum("speaker" in one and "> end: 2" in one for one in ends) == 1


@pytest.mark.exhaustive
def test_many_speakers_are_drawn_at_once() -> None:
    many = Conversation(
        task="Vote.",
        speakers=[{"name": f"S{number}", "checks_completion": True} for number in range(20)],
        end_chat={"mode": "all_task_must_complete", "max_iterations": 1000},
    )
    drawn = arrows(many)
    assert {f"judge S{number} > end: yes" for number in range(20)} <= drawn
    assert {"speaker S19 > end: 1,000 rounds", "speaker S7 > speaker S8: "} <= drawn


@pytest.mark.exhaustive
@pytest.mark.parametrize("order", ["handoff", {"kind": "moderator"}], ids=str)
def test_twice_as_many_who_may_be_chosen_take_no_more_than_ten_times_the_steps(
    order: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[Position] = []

    def noted(conversation: Conversation, position: Position) -> Decision:
        steps.append(position)
        return decide(conversation, position)

    monkeypatch.setattr("duologue.graphs.show.conversation_paths.decide", noted)
    counts = []
    for count in (6, 12):
        steps.clear()
        names = [{"name": f"S{number}", "checks_completion": True} for number in range(count)]
        end_chat = {"mode": "all_task_must_complete", "max_iterations": 9}
        ways(Conversation(task="Vote.", speakers=names, turn_order=order, end_chat=end_chat))
        counts.append(len(steps))
    assert counts[1] < 10 * counts[0]


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
    assert "speaker Bob > end: says DONE" in arrows(talk)
