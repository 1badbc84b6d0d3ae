"""Logs of possible runs, drawn: openings, tools, drafts, reflections, two or three speakers."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call

from duologue.graphs import Conversation, Opening, PrivateOpening, Speaker
from duologue.graphs.log.memory import list_known
from support.log import KINDS, Stage, fields_of, make_line, make_tool_line


@dataclass
class Run:
    """A log, and facts about how it was created."""

    conversation: Conversation
    log: list[AnyMessage] = field(default_factory=list)
    prompts: dict[str, list[int]] = field(default_factory=dict)
    """For each speaker, the length of the log at each request to its model."""
    pinned: dict[str, list[int]] = field(default_factory=dict)
    """For each speaker, the indexes of the messages that it knows from before the rounds."""

    def write(self, text: str, kind: str, speaker: str | None, **more: Any) -> int:
        """Append a message; return its index."""
        calls = more.pop("tool_calls", [])
        fields = {name: value for name, value in more.items() if name in KINDS[kind]}
        number = len(self.log)
        self.log.append(make_line(number, text, kind, speaker=speaker, tool_calls=calls, **fields))
        return len(self.log) - 1

    def asked(self, name: str) -> None:
        """Record that a speaker's model is asked."""
        self.prompts.setdefault(name, []).append(len(self.log))

    def pin(self, name: str, place: int) -> None:
        """Record that a speaker never forgets a message."""
        self.pinned.setdefault(name, []).append(place)


TEXTS = st.builds(
    lambda word, times: (word + " ") * times,
    st.sampled_from(["word", "今天天气", "é"]),
    st.integers(0, 12),
)


def memory_of(name: str) -> list[AnyMessage]:
    """Return a speaker's memory of a talk with a stranger: texts, and a call with its result."""
    call = tool_call(name="add", args={"a": 1}, id="c0-0")
    return [
        HumanMessage("Talk with Zoe."),
        HumanMessage("What is it? " * 9, name="Zoe"),
        AIMessage("", tool_calls=[call]),
        ToolMessage("word " * 5, tool_call_id="c0-0"),
        AIMessage("It is that. " * 9),
        HumanMessage("Ah.", name="Zoe"),
    ]


def _turn(draw: st.DrawFn, run: Run, name: str, audience: Any, stage: Stage) -> None:  # noqa: ANN401
    """Write one turn of a speaker: drafts, tools, and its message."""
    about: dict[str, Any] = {"audience": audience, "stage": stage}
    places: list[int] = []
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        run.asked(name)
        start = len(run.log)
        ids = [f"c{start}-{n}" for n in range(draw(st.integers(1, 2)))]
        calls = [tool_call(name="add", args={"a": 1}, id=key) for key in ids]
        text = draw(st.sampled_from(["", "Let me see."]))
        places.append(run.write(text, "tool_calls", name, tool_calls=calls, **about))
        for key in ids:
            found = draw(TEXTS)
            run.log.append(make_tool_line(len(run.log), found, speaker=name, call_id=key))
            places.append(len(run.log) - 1)
    run.asked(name)
    if draw(st.integers(0, 4)) == 0:
        run.write("draft", "draft", name, audience=(), stage=stage)
        run.asked(name)
    places.append(run.write(draw(TEXTS), "speech", name, **about))
    if stage not in (Stage.ROUNDS, Stage.LAST_WORDS):
        for place in places:
            run.pin(name, place)
        # Others hear a blank answer, but not a tool call without text.
        heard = [it for it in places if run.log[it].type == "ai" and run.log[it].text]
        for other in run.conversation.names if audience is None else ():
            for place in sorted({*heard, places[-1]}):
                if other != name:
                    run.pin(other, place)


def _before_the_rounds(draw: st.DrawFn, run: Run) -> None:
    conversation = run.conversation
    run.log += list_known(conversation, len(run.log))
    for place, message in enumerate(run.log):
        about = fields_of(message)
        # A memory is part of the history, which may be omitted; the private opening always stays.
        if about.kind == "remembered" and about.stays:
            run.pin(about.audience[0], place)
    for name in conversation.secretive:
        place = run.write("Make up a secret.", "instruction", None, audience=(name,))
        run.pin(name, place)
        _turn(draw, run, name, (name,), Stage.PRIVATE)
    opening = conversation.opening
    for name in conversation.names if opening.answers else ():
        audience = None if opening.reconcile else (name,)
        place = run.write(f"{name}'s task.", "instruction", None, audience=audience, to=name)
        for one in conversation.names if opening.reconcile else (name,):
            run.pin(one, place)
        _turn(draw, run, name, audience, Stage.OPENING)
    owner = (conversation.order[0],)
    if opening.answers and not opening.reconcile:
        run.write("What they said.", "opening_answer", conversation.order[-1], audience=owner)
    else:
        run.write("Please begin.", "instruction", None, audience=owner)


@st.composite
def runs(draw: st.DrawFn, most_turns: int = 14) -> Run:
    """Draw a possible run, with the policy that keeps all messages."""
    names = draw(st.sampled_from([["Ann", "Bob"], ["Ann", "Bob", "Cid"]]))
    answers = draw(st.booleans())
    private = st.sampled_from(
        [None, PrivateOpening(lines=("Bob fibs.",)), PrivateOpening(prompt="Make up a secret.")]
    )
    conversation = Conversation(
        task="Talk.",
        speakers=tuple(
            Speaker(
                name=name,
                task=f"{name}'s task." if answers else None,
                private_opening=draw(private),
                keep_self_reflection=draw(st.booleans()),
                memory=memory_of(name) if draw(st.booleans()) else (),
            )
            for name in names
        ),
        opening=Opening(answers=answers, reconcile=answers and draw(st.booleans())),
    )
    run = Run(conversation)
    _before_the_rounds(draw, run)
    for number in range(draw(st.integers(0, most_turns))):
        name = conversation.order[number % len(names)]
        if number and len(names) > 2:
            run.write(f"{name}, it is your turn.", "instruction", None, audience=(name,))
        _turn(draw, run, name, None, Stage.ROUNDS)
        if draw(st.integers(0, 3)) == 0:
            kept = (name,) if conversation.speaker(name).keep_self_reflection else ()
            run.write("What is left?", "judge_question", None, audience=kept)
            run.write("Nothing.", "reflection", name, audience=kept)
    return run
