"""The viewpoint's properties hold with everything that shapes a speaker switched on (L3, L4, L9).

Whole conversations are drawn and run: examples, prefixes, labels, hooks that change all that
passes, replies of functions and fixed texts, tools, openings, verdicts. Every word that is said is
its own, so that it can be told where it turns up.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import count, pairwise
from random import Random
from typing import Any

from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.outputs import ChatResult
from langchain_core.tools import tool
from pydantic import PrivateAttr

from drawn.logs import memory_of
from duologue.graphs import Conversation, build_graph, load_conversation
from duologue.graphs.log.messages import metadata, place_of
from duologue.graphs.log.metadata import (
    Draft,
    HookVersion,
    Reflection,
    RememberedMessage,
    Speech,
    ToolCalls,
    ToolResult,
)
from duologue.graphs.log.names import provider_names
from duologue.graphs.log.remembered import remembered
from duologue.graphs.log.state import State
from duologue.graphs.log.viewpoint import SILENCE, View
from duologue.graphs.rules.moves import max_steps
from duologue.graphs.sessions.stored_session import StoredSession
from duologue.nodes.prompts import judging, speaking
from duologue.nodes.prompts.speaking import LAST_MESSAGE, MODERATOR_LABEL, fill_template
from duologue.nodes.testing import Line as Said, Prompt, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.tools import Hook, Turn
from support.cases import drawn_cases
from support.fields import fields_of

from .shape_help import well_formed

MENDING = speaking.REWRITE_REPLY.removeprefix("{problem}")
NAMES = [["Ann", "Bob"], ["Ann", "Bob", "Cid"], ["A b", "A-b", "李雷"]]
EXAMPLES = [
    {"role": "user", "content": "Shown a."},
    {"role": "assistant", "content": "Shown b."},
    {"role": "user", "content": "Shown c."},
    {"role": "assistant", "content": "Shown d."},
]


def words(messages: Sequence[BaseMessage]) -> list[str]:
    """The words that can be told apart: by a letter who made them, in capitals as hooks heard."""
    return re.findall(r"[a-zA-Z]\d+x", " ".join(message.text for message in messages), re.I)


class Meddling(ScriptedChatModel):
    """A model that keeps what it was sent, and then spoils it."""

    _sent: list[list[BaseMessage]] = PrivateAttr(default_factory=list)

    @property
    def sent(self) -> list[list[BaseMessage]]:
        return self._sent

    async def _agenerate(self, messages: list[BaseMessage], *given: Any, **more: Any) -> ChatResult:
        self._sent.append(deepcopy(messages))
        answer = await super()._agenerate(messages, *given, **more)
        spoil(messages)
        messages.clear()
        return answer


def spoil(messages: Sequence[BaseMessage]) -> None:
    for message in messages:
        message.content = "spoilt"
        message.additional_kwargs["spoilt"] = True
        for call in message.tool_calls if isinstance(message, AIMessage) else ():
            call["args"].setdefault("deep", []).append("spoilt")


class Play:
    """What speaks in a drawn conversation, and what its hooks and functions do."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311  # a drawn seed, nothing secret
        self.numbers = count()
        self.model = Meddling(script=self.speak)
        self.registered: dict[str, Any] = {
            "tools": [self.tool()],
            "functions": {"f": self.function},
            "orders": {"any": lambda said, names: self.random.choice(names)},
            "hooks": {
                "spoils": Hook(before_speaker=lambda turn: spoil(turn.messages)),
                "before": Hook(before_speaker=self.before),
                "after": Hook(after_speaker=lambda turn, reply: AIMessage(other(reply.text, "h"))),
                "tools": Hook(before_tool=self.before_tool, after_tool=self.after_tool),
            },
        }

    def word(self, letter: str) -> str:
        return f"{letter}{next(self.numbers)}x"

    def speak(self, prompt: Prompt) -> Said:
        if prompt[-1]["content"] == judging.JUDGE_OWN_TASK:
            left = [self.word("v")] if self.random.random() < 0.7 else []
            return {"objectives_left": left, "complete": not left}
        drawn = self.random.random()
        if drawn < 0.1:
            return " "
        if drawn < 0.3:
            calls = [self.call() for _ in range(self.random.randint(1, 3))]
            return Reply(text=self.random.choice(["", self.word("m")]), tool_calls=calls)
        return f"{self.word('m')} it is.\n\nAnd {self.word('m')}."

    def call(self) -> ScriptedToolCall:
        args: dict[str, Any] | str = {"deep": [self.word("a")]}
        return ScriptedToolCall(
            name="look", args=self.random.choice([args, args, "{broken"]), id=self.word("c")
        )

    def tool(self) -> Any:  # noqa: ANN401
        @tool
        def look(deep: list[str]) -> str:
            """Look."""
            return self.word("t")

        return look

    def function(self, turn: Turn) -> str | None:
        spoil(turn.messages)
        return self.random.choice([None, self.word("f")])

    def before(self, turn: Turn) -> HumanMessage | AIMessage | None:
        spoil(turn.messages)
        drawn = self.random.random()
        if drawn < 0.15:
            return AIMessage(self.word("b"))
        return HumanMessage(f"Heard: {turn.heard.upper()}") if drawn < 0.8 else None

    def before_tool(self, turn: Turn, call: ToolCall) -> ToolCall | ToolMessage:
        spoil(turn.messages)
        if self.random.random() < 0.3:
            return ToolMessage(self.word("i"), tool_call_id="")
        return ToolCall(name=call["name"], args={"deep": [self.word("a")]}, id=None)

    def after_tool(self, turn: Turn, call: ToolCall, result: ToolMessage) -> ToolMessage:
        call["args"]["deep"].append("spoilt")
        return ToolMessage(other(result.text, "r"), tool_call_id="", status=result.status)


def other(text: str, letter: str) -> str:
    """A text with words of another letter, of the same numbers."""
    return re.sub(r"[a-z](?=\d+x)", letter, text)


@st.composite
def any_talk(draw: st.DrawFn) -> Conversation:
    names = draw(st.sampled_from(NAMES))
    answers = draw(st.booleans())
    speakers = []
    for name in names:
        others = [other for other in names if other != name]
        prefixed = draw(st.lists(st.sampled_from(others), unique=True))
        model = draw(st.sampled_from(["model", "model", "function, model", "function, text"]))
        replies = [{"kind": "function", "name": "f"}] if "function" in model else []
        last = {"kind": "text", "text": "Fixed."} if "text" in model else {"kind": "model"}
        openings = [None, {"lines": ["Psst p1x."]}, {"prompt": "Choose p2x."}]
        speakers.append(
            {
                "name": name,
                "task": f"Task of {name}.",
                "examples": EXAMPLES[: draw(st.sampled_from([0, 2, 4]))],
                "prefixes": {other: f"Before {place}:\n" for place, other in enumerate(prefixed)},
                "labels": draw(st.sampled_from([None, True, False])),
                "hooks": draw(
                    st.lists(st.sampled_from(["spoils", "before", "after", "tools"]), unique=True)
                ),
                "replies": [*replies, last],
                "tools": ["look"] if "model" in model and draw(st.booleans()) else [],
                "private_opening": draw(st.sampled_from(openings)),
                "memory": memory_of(name) if draw(st.booleans()) else (),
                "checks_completion": draw(st.booleans()),
                "keep_self_reflection": draw(st.booleans()),
            }
        )
    by_lot = {"kind": "function", "name": "any"}
    modes = ["max_iterations_only"]
    if any(speaker["checks_completion"] for speaker in speakers):
        modes += ["all_task_must_complete", "one_last_group_chat_after_first_completion"]
    return load_conversation(
        {
            "speakers": speakers,
            "opening": {"answers": answers, "reconcile": answers and draw(st.booleans())},
            "turn_order": draw(st.sampled_from(["round_robin", by_lot])),
            "end_chat": {
                "mode": draw(st.sampled_from(modes)),
                "max_iterations": 3,
                "guards": {"blank_replies": 0, "same_tool_calls": 0},
            },
        }
    )


def run(conversation: Conversation, play: Play) -> StoredSession:
    """Run the compiled graph itself, without sessions."""
    graph = build_graph(model=play.model, **play.registered)
    config: Any = {"recursion_limit": max_steps(conversation)}
    given: Any = {"conversation": conversation.stored()}
    whole = [*State.__annotations__]
    state = asyncio.run(graph.ainvoke(given, config, output_keys=whole))
    return StoredSession.of("s", conversation, dict(state))


def by_speaker(sent: Sequence[Sequence[BaseMessage]]) -> Mapping[str, list[Sequence[BaseMessage]]]:
    """Prompts, by whom they are for: the system prompt says it."""
    found: dict[str, list[Sequence[BaseMessage]]] = {}
    for prompt in sent:
        name, _, _ = prompt[0].text.removeprefix("You are ").partition(", in a conversation")
        found.setdefault(name, []).append(prompt)
    return found


def is_for_a_turn(prompt: Sequence[BaseMessage]) -> bool:
    """Whether a prompt is no verdict's, and asks for nothing once more."""
    asked = str(prompt[-1].text)
    return asked != judging.JUDGE_OWN_TASK and not asked.endswith(MENDING)


def plain(messages: Sequence[BaseMessage]) -> list[tuple[Any, ...]]:
    """Messages as a provider gets them."""
    return [
        (message.type, message.text, message.name, getattr(message, "tool_calls", None))
        for message in messages
    ]


def lines_for(result: StoredSession, name: str) -> Iterator[tuple[BaseMessage, bool]]:
    """The lines that belong in a speaker's view, by the published rules.

    Each with whether it is the speaker's own. What a hook has changed stands in the place of what
    it was made of.
    """
    read = [(message, metadata(message)) for message in result.messages]
    changed = {
        gone
        for _, about in read
        if isinstance(about, HookVersion) and about.audience == (name,)
        for gone in about.instead_of
    }
    always = Speech | ToolCalls | ToolResult | RememberedMessage
    for message, about in read:
        if place_of(message) in changed:
            continue
        if about.speaker == name:
            if isinstance(about, always) or (
                isinstance(about, Reflection) and about.audience == (name,)
            ):
                yield message, True
        elif about.audience is None or name in about.audience:
            yield message, False


@drawn_cases(4, 15, conversation=any_talk(), seed=st.integers(0, 2**32))
def test_every_prompt_is_one_that_providers_take_and_begins_the_next(
    conversation: Conversation, seed: int
) -> None:
    """L1, L3: roles in turn, calls with results, names; what was sent before stays as it was."""
    play = Play(seed)
    result = run(conversation, play)
    assert result.outcome is not None
    names = provider_names(conversation.names)
    for name, sent in by_speaker(play.model.sent).items():
        others = {names[other] for other in conversation.names if other != name}
        for prompt in sent:
            well_formed(prompt)
            assert isinstance(prompt[0], SystemMessage)
            for message in prompt[1:]:
                if isinstance(message, AIMessage) and message.name is not None:
                    assert message.name == names[name]
                elif isinstance(message, HumanMessage):
                    assert message.name in {None, *others}
        turns = [*filter(is_for_a_turn, sent)]
        end = View(result.conversation, name, in_prompt=True).of(
            remembered(result.messages, name), prompts_of(result, name)
        )
        for before, after in pairwise(map(without_announcement, [*turns, end])):
            assert isinstance(before[-1], HumanMessage | ToolMessage)
            assert plain(after[: len(before)]) == plain(before)
            # The reply, as it was said, follows.
            assert isinstance(after[len(before)], AIMessage)


def without_announcement(prompt: Sequence[BaseMessage]) -> list[BaseMessage]:
    """R18: that it has last words stands behind what a speaker heard last, in that turn alone."""
    found = [*prompt]
    place = max(place for place, one in enumerate(found) if isinstance(one, HumanMessage))
    told = fill_template(MODERATOR_LABEL, text=LAST_MESSAGE)
    text = found[place].text.removesuffix(f"\n\n{told}").removesuffix(f"\n\n{LAST_MESSAGE}")
    found[place] = found[place].model_copy(update={"content": text})
    return found


def prompts_of(result: StoredSession, name: str) -> str:
    conversation = result.conversation
    return conversation.system_prompt(conversation.speaker(name), result.specified_task)


@drawn_cases(4, 15, conversation=any_talk(), seed=st.integers(0, 2**32))
def test_nothing_shows_that_a_speaker_may_not_hear(conversation: Conversation, seed: int) -> None:
    """L3, L7: no answer or line that a hook has changed, no result of another's, no draft."""
    play = Play(seed)
    result = run(conversation, play)
    drafts = {
        name: words(
            [
                message
                for message in result.messages
                if isinstance(metadata(message), Draft) and metadata(message).speaker == name
            ]
        )
        for name in conversation.names
    }
    for name, sent in by_speaker(play.model.sent).items():
        may = {*words([message for message, _ in lines_for(result, name)])}
        for prompt in sent:
            mending = prompt[-1].text.endswith(MENDING)
            shown = {*words(prompt)}
            assert shown <= may | ({*drafts[name]} if mending else set())
    for speaker in conversation.speakers:
        view = result.viewpoint(speaker.name)
        if "after" in speaker.hooks:
            own = [message for message in view if isinstance(message, AIMessage)]
            assert {word[0] for word in words(own)} <= {"h", "v"}
        if "tools" in speaker.hooks:
            got = [message for message in view if isinstance(message, ToolMessage)]
            assert {word[0] for word in words(got)} <= {"r"}


@drawn_cases(4, 15, conversation=any_talk(), seed=st.integers(0, 2**32))
def test_a_view_is_whole_with_prefix_and_label_in_front_of_each_line(
    conversation: Conversation, seed: int
) -> None:
    """L3, L9, Y20: joined with a blank line; a hook's text stands there as it is."""
    result = run(conversation, Play(seed))
    for speaker in conversation.speakers:
        default = len(conversation.names) > 2 or conversation.opening.reconcile
        label = default if speaker.labels is None else speaker.labels
        heard, own = [], []
        for message, is_own in lines_for(result, speaker.name):
            about = metadata(message)
            text = message.text.strip()
            if is_own:
                if not isinstance(message, ToolMessage):
                    own += words([message])
                continue
            if not text and isinstance(about, ToolCalls):
                continue
            text = text or SILENCE
            to = fields_of(message).to
            if to not in (None, speaker.name):
                text = f"To {to}: {text}"
            if label and about.speaker is not None:
                text = f"{about.speaker}: {text}"
            heard.append(speaker.prefixes.get(about.speaker or "", "") + text)
        view = result.viewpoint(speaker.name)
        behind = view[1 + len(speaker.examples) :]
        assert "\n\n".join(one.text for one in behind if isinstance(one, HumanMessage)) == (
            "\n\n".join(heard)
        )
        assert words([one for one in behind if isinstance(one, AIMessage)]) == own


@drawn_cases(4, 15, conversation=any_talk(), seed=st.integers(0, 2**32))
def test_examples_stand_behind_the_system_prompt_and_are_never_changed(
    conversation: Conversation, seed: int
) -> None:
    """L4: Lagent's list is shared and grows; here models, hooks and functions do their worst."""
    given_as = conversation.model_dump_json()
    play = Play(seed)
    result = run(conversation, play)
    assert conversation.model_dump_json() == given_as
    assert "spoilt" not in str(play.model.sent)
    assert "spoilt" not in str(result.messages)
    names = provider_names(conversation.names)
    roles = {"user": "human", "assistant": "ai"}
    for name, sent in by_speaker(play.model.sent).items():
        examples = conversation.speaker(name).examples
        expected = [
            (roles[one.role], one.content, names[name] if one.role == "assistant" else None)
            for one in examples
        ]
        for prompt in sent:
            shown = prompt[1 : 1 + len(examples)]
            assert [(one.type, one.text, one.name) for one in shown] == expected
            assert not any("Shown" in one.text for one in prompt[1 + len(examples) :])
