"""Every prompt of drawn conversations, under each context policy, with all options of speakers.

Two to four speakers; examples, prefixes, labels, marks, private openings, hooks that change
messages, functions, code, tools that need a person's approval, a person who sees the calls, judges.
U5, L3, L4, L7, L9, Y16, Y18.
"""

import asyncio
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.tools import BaseTool, tool
from langchain_core.utils.function_calling import convert_to_openai_tool

from drawn.talks import with_contexts
from duologue.graphs import (
    Conversation,
    MessageQuestion,
    Question,
    Result,
    RunningSummary,
    TokenBudget,
    aconverse,
    load_conversation,
)
from duologue.graphs.prompts import prompts
from duologue.graphs.speakers.call_settings import KeepAll
from duologue.graphs.speakers.reply_parts import ALOUD
from duologue.graphs.text.words import tokens_of, tokens_of_message
from duologue.nodes.testing import Line as Said, Prompt, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.tools import Hook, Turn
from support.cases import drawn_cases
from support.log import fields_of, kind_of, place_of
from support.shape_help import has_accepted_order

T = TypeVar("T")

NAMES = ("Ann Lee", "Bob", "李雷", "Dot")
QUESTIONS = (prompts.JUDGE_OWN_TASK, prompts.LIST_OBJECTIVES_LEFT, prompts.IS_TASK_COMPLETE)
JUDGED = {it: it for it in QUESTIONS} | {
    prompts.RETRY_FORMAT.replace("{question}", it): it for it in QUESTIONS
}
"""Questions to a judge, in the first and the second request (R17)."""
MENDING = prompts.REWRITE_REPLY.removeprefix("{problem}")
BEGINNING = (prompts.BEGIN, prompts.CONTINUE_CONVERSATION)
SHORTENED = prompts.LEFT_OUT.partition("}")[2]
IN_SHORT = prompts.SUMMARY_HEADING.partition("\n")[0]
MARK = "Say:"
EXAMPLES = [
    {"role": "user", "content": "Shown a."},
    {"role": "assistant", "content": "Shown b."},
]


def words(texts: Sequence[str]) -> list[str]:
    """Return the unique words; the first letter of each shows its author."""
    return re.findall(r"[a-z][0-9a-f]{12}x", " ".join(texts))


def words_of(message: BaseMessage, *, calls: bool = True) -> list[str]:
    made = message.tool_calls if isinstance(message, AIMessage) and calls else []
    return words([message.text, *(str(call["args"]) for call in made)])


class Troupe:
    """The authors of all messages; each message is unique."""

    def __init__(self, conversation: Conversation, seed: int, pad: int) -> None:
        self.conversation = conversation
        self.seed, self.pad = seed, pad
        self.said = 0
        self.model = ScriptedChatModel(script=self.speak)
        self.answered: list[tuple[Prompt, list[str]]] = []

    @property
    def options(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "answer": self.answer,
            "tools": [self.tool],
            "functions": {"f": self.function},
            "orders": {"any": self.order},
            "hooks": {
                "before": Hook(before_speaker=self.before),
                "behind": Hook(after_speaker=self.behind),
                "tools": Hook(after_tool=self.after_tool),
            },
        }

    @property
    def tool(self) -> BaseTool:
        @tool
        def look(word: str) -> str:
            """Look something up."""
            found = self.word("t", word)
            return f"{found} {'and so on ' * self.one_of('long', word, (0, 3, 30))}"

        return look

    def hash(self, *given: str) -> str:
        return hashlib.sha256(json.dumps([self.seed, *given]).encode()).hexdigest()

    def word(self, letter: str, *given: str) -> str:
        self.said += 1
        return f"{letter}{self.hash('word', letter, str(self.said), *given)[:12]}x"

    def one_of(self, kind: str, given: str, among: Sequence[T]) -> T:
        return among[int(self.hash("one", kind, given), 16) % len(among)]

    def speak(self, prompt: Prompt) -> Said:
        given = json.dumps(prompt)
        said = self.says(prompt, given)
        made = said.tool_calls if isinstance(said, Reply) else ()
        text = (said.text or "") if isinstance(said, Reply) else str(said)
        self.answered.append((prompt, words([text, *(str(call.args) for call in made)])))
        return said

    def says(self, prompt: Prompt, given: str) -> Said:
        system, last = str(prompt[0]["content"]), str(prompt[-1]["content"])
        if system.startswith("You keep the memory"):
            return f"In short {self.word('s', given)}."
        if JUDGED.get(last) == prompts.JUDGE_OWN_TASK:
            return {"objectives_left": [self.word("v", given)], "complete": False}
        if last in JUDGED:
            return self.one_of("verdict", given, ("no", "Hm", f"Much {self.word('v', given)}."))
        mends = last.endswith(MENDING)
        does = self.one_of("does", given, (*["speech"] * 4, *["call"] * 3, "draft", "code"))
        if does == "call":
            calls = [
                ScriptedToolCall(
                    name="look",
                    args={"word": self.word("a", given, str(number))},
                    id=self.word("c", given, str(number)),
                )
                for number in range(self.one_of("calls", given, (1, 1, 2, 3)))
            ]
            text = self.one_of("beside", given, ("", f"{MARK} {self.word('m', given)}"))
            return Reply(text=text, tool_calls=calls)
        pad = " and so on" * self.one_of("pad", given, (0, self.pad, self.pad, 6 * self.pad))
        if does == "draft" and not mends:
            return f"{self.word('d', given)}{pad}"
        word = self.word("m", given)
        if does == "code":
            return f"{MARK} {word}\n```python\nprint('{self.word('o', given)}')\n```"
        return f"{MARK} {word}{pad}."

    def seen(self, turn: Turn) -> str:
        shown = [(one.type, one.text) for one in turn.messages]
        return json.dumps([turn.speaker, shown, turn.heard])

    def function(self, turn: Turn) -> str | None:
        given = self.seen(turn)
        return self.one_of("function", given, (None, f"{MARK} {self.word('f', given)}"))

    def before(self, turn: Turn) -> HumanMessage | AIMessage | None:
        given = self.seen(turn)
        changed = HumanMessage(f"Heard: {self.word('h', given)}")
        replied = AIMessage(f"{MARK} {self.word('b', given)}")
        return self.one_of("before", given, (None, changed, changed, replied))

    def behind(self, turn: Turn, reply: AIMessage) -> AIMessage | None:
        given = self.seen(turn)
        return self.one_of("behind", given, (None, AIMessage(f"{reply.text} Indeed.")))

    def after_tool(self, turn: Turn, call: ToolCall, found: ToolMessage) -> ToolMessage:
        return ToolMessage(self.word("r", found.text), tool_call_id="", status=found.status)

    def order(self, said: Sequence[BaseMessage], names: Sequence[str]) -> str:
        return self.one_of("order", str([one.text for one in said]), names)

    def answer(self, question: Question) -> Any:  # noqa: ANN401
        if isinstance(question, MessageQuestion):
            given = question.model_dump_json(exclude={"id"})
            text = f"{MARK} {self.word('p', given)}"
            return self.one_of("person", given, ("", text))
        asked = question.model_dump(mode="json")
        requests = asked["action_requests"]
        return {"decisions": [self.decision(str(one)) for one in requests]}

    def decision(self, given: str) -> dict[str, Any]:
        edited = {"name": "look", "args": {"word": self.word("e", given)}}
        return self.one_of(
            "decision",
            given,
            (
                {"type": "approve"},
                {"type": "edit", "edited_action": edited},
                {"type": "reject", "message": self.word("x", given)},
                {"type": "respond", "message": self.word("y", given)},
            ),
        )


@st.composite
def talks(draw: st.DrawFn) -> Conversation:
    names = NAMES[: draw(st.integers(2, 4))]
    answers = draw(st.booleans())
    model: list[Any] = ["model"]
    function: list[Any] = [{"kind": "function", "name": "f"}, "model"]
    person: list[Any] = [
        {"kind": "human", "sees_calls": True, "max_consecutive_auto_reply": 1000},
        {"kind": "function", "name": "f"},
        "model",
    ]
    has_person = draw(st.booleans())
    speakers: list[dict[str, Any]] = []
    for place, name in enumerate(names):
        others = [other for other in names if other != name]
        may_call = draw(st.booleans())
        openings = [None, {"lines": ["Psst q0123456789abx."]}, {"prompt": "Choose something."}]
        replies = draw(st.sampled_from((model, model, function)))
        if place == len(names) - 1 and has_person:
            replies = person
        speakers.append(
            {
                "name": name,
                "task": f"Task of {name}.",
                "examples": draw(st.sampled_from([[], EXAMPLES])),
                "prefixes": {others[0]: "Now this:\n"} if draw(st.booleans()) else {},
                "labels": draw(st.sampled_from([None, True, False])),
                "hooks": draw(st.sampled_from([[], [], ["before"], ["behind", "tools"]])),
                "replies": replies,
                "tools": ["look"] if may_call else [],
                "interrupt_on": {"look": True} if may_call and draw(st.booleans()) else {},
                "speaks_with_tool_calls": may_call and draw(st.booleans()),
                "return_direct": may_call and draw(st.sampled_from((False, False, True))),
                "private_opening": draw(st.sampled_from(openings)),
                "checks_completion": True,
                "keep_self_reflection": draw(st.booleans()),
                "format": draw(st.sampled_from([None, {"kind": "lines", "lines": [MARK]}])),
            }
        )
    mode = draw(st.sampled_from(["max_iterations_only", "all_task_must_complete"]))
    off = (
        "blank_replies",
        "same_replies",
        "farewells",
        "standstill",
        "role_flips",
        "same_tool_calls",
    )
    conversation = load_conversation(
        {
            "task": "Talk.",
            "speakers": speakers,
            "opening": {"answers": answers, "reconcile": answers and draw(st.booleans())},
            "turn_order": draw(
                st.sampled_from(["round_robin", {"kind": "function", "name": "any"}])
            ),
            "judge": {"form": draw(st.sampled_from(["structured", "two_questions"]))},
            "end_chat": {
                "mode": mode,
                "max_iterations": draw(st.integers(3, 7)),
                "guards": dict.fromkeys((*off, "unreadable_verdicts"), 0),
            },
            "max_tool_rounds": 2,
        }
    )
    return with_contexts(draw, conversation)


class Word(NamedTuple):
    """A word that a speaker may see."""

    text: str
    pinned: bool
    own: bool
    place: int
    """Index of the message in the log."""


def audible(result: Result, name: str) -> list[Word]:
    """Return the words that a speaker said and heard, in log order, by the published rules."""
    read = [(message, fields_of(message)) for message in result.messages]
    begins = next(
        (
            place
            for place, (_, about) in enumerate(read)
            if about.kind in ("speech", "tool_calls", "draft", "unheard_reply", "code")
            and about.speaker is not None
            and about.stage in ALOUD
        ),
        len(read),
    )
    gone = {
        one
        for _, about in read
        if about.kind == "hook_version" and about.audience == (name,)
        for one in about.instead_of
    }
    # The message that starts the first speaker is obsolete later.
    cues = ("instruction", "opening_answer")
    told = [place for place in range(begins) if read[place][1].kind in cues]
    begin_line = told[-1] if told and begins < len(read) else None
    known = {
        place_of(message) for place, (message, _) in enumerate(read[:begins]) if place != begin_line
    }
    found: list[Word] = []
    for place, (message, about) in enumerate(read):
        if place_of(message) in gone or about.kind == "summary":
            continue
        own = about.speaker == name
        kept = about.kind in ("speech", "tool_calls", "tool_result")
        kept |= about.kind == "reflection" and about.audience == (name,)
        heard = about.audience is None or name in about.audience
        if (own and not kept) or (not own and not heard):
            continue
        pinned = place < begins and about.kind != "opening_answer" and place != begin_line
        pinned |= about.kind == "hook_version" and not known.isdisjoint(about.instead_of)
        found += [Word(it, pinned, own, place) for it in words_of(message, calls=own)]
    return found


class Asked(NamedTuple):
    name: str
    messages: list[BaseMessage]
    """All messages of the prompt."""
    view: list[BaseMessage]
    """The speaker's view, without the question at the end."""
    reply: list[str]
    """The words of the answer."""

    @property
    def judges(self) -> bool:
        """Return whether the speaker judges its own task in this call."""
        return self.messages[-1].text in JUDGED

    @property
    def is_turn(self) -> bool:
        """Return whether this is the first request for a reply."""
        return len(self.view) == len(self.messages) and not self.messages[-1].text.endswith(MENDING)


def asked(troupe: Troupe, calls: Sequence[Sequence[BaseMessage]]) -> Iterator[Asked]:
    """Yield the calls for speakers, without the calls for summaries."""
    for messages, (_, reply) in zip(calls, troupe.answered, strict=True):
        name = next((it for it in NAMES if messages[0].text.startswith(f"You are {it}, ")), None)
        if name is None:
            assert messages[0].text.startswith("You keep the memory")
            continue
        view, last = list(messages), messages[-1].text
        if last in JUDGED:
            keeps = troupe.conversation.speaker(name).keep_self_reflection
            del view[-3 if JUDGED[last] == prompts.IS_TASK_COMPLETE and not keeps else -1 :]
        elif last.endswith(MENDING):
            # After a blank draft, the request is a separate message or at the end of the heard one.
            heard = view.pop().text.rpartition("\n\n")[0]
            if heard:
                view.append(HumanMessage(heard))
            elif isinstance(view[-1], AIMessage):
                view.pop()
        yield Asked(name, list(messages), view, reply)


def check(troupe: Troupe, result: Result, calls: Sequence[Sequence[BaseMessage]]) -> None:
    conversation = troupe.conversation
    seen = {name: audible(result, name) for name in conversation.names}
    latest: dict[str, Asked] = {}
    fixed = tokens_of(json.dumps(convert_to_openai_tool(troupe.tool)))
    for one in asked(troupe, calls):
        speaker = conversation.speaker(one.name)
        has_accepted_order(one.messages)
        assert isinstance(one.messages[-1], HumanMessage | ToolMessage)
        if one.is_turn:
            assert isinstance(one.view[-1], HumanMessage | ToolMessage)
        if any(SHORTENED in message.text for message in one.messages):
            # A turn larger than the limit: `test_large_turns` tests its prompts.
            assert isinstance(speaker.context, TokenBudget | RunningSummary)
            latest.pop(one.name, None)
            continue
        examples = len(speaker.examples)
        shown = [message.text for message in one.messages[1 : 1 + examples]]
        assert shown == [example.text for example in speaker.examples]
        # The words of the summary belong to no speaker.
        stand = [it for message in one.view[1:] for it in words_of(message) if it[0] != "s"]
        found = cut_of(seen[one.name], stand, one.reply)
        assert found is not None, (stand, seen[one.name])
        free = seen[one.name][slice(*found)]
        # The limit applies unless only the newest turn is left.
        own = {it.place for it in free if it.own and not it.pinned and is_speech(result, it)}
        context = speaker.context
        # A judge's question is about the turn that has just ended.
        if isinstance(context, TokenBudget | RunningSummary) and len(own) > one.judges:
            tokens = sum(map(tokens_of_message, one.messages))
            tokens += fixed if speaker.tools else 0
            assert tokens <= context.limit
        before = latest.get(one.name)
        if before is not None and one.is_turn:
            goes_on(before, one, shortens=not isinstance(context, KeepAll))
        if one.is_turn:
            latest[one.name] = one


def is_speech(result: Result, word: Word) -> bool:
    return kind_of(result.messages[word.place]) == "speech"


def cut_of(
    seen: Sequence[Word], stand: Sequence[str], reply: Sequence[str]
) -> tuple[int, int] | None:
    """Return the start and the end of the kept range, before which only pinned words are left."""
    order = [it.text for it in seen]
    ends = [order.index(reply[0])] if reply and reply[0] in order else range(len(order), -1, -1)
    for end in ends:
        for start in range(end + 1):
            pinned = [it.text for it in seen[:start] if it.pinned]
            if [*pinned, *order[start:end]] == list(stand):
                return start, end
    return None


def goes_on(before: Asked, one: Asked, *, shortens: bool) -> None:
    """Check that a prompt begins the next one, or that the cut has moved forward."""
    # A secret that the speaker invents has no format, so its system prompt describes none.
    old = [(it.type, it.text) for it in before.messages[1:]]
    new = [(it.type, it.text) for it in one.view[1:]]
    if new[: len(old)] == old:
        assert len(new) == len(old) or new[len(old)][0] == "ai"
        return
    were = [it for message in before.messages for it in words_of(message)]
    are = [it for message in one.view for it in words_of(message)]
    # A word is left out; the message that starts the first speaker has no words.
    left_out = [it for it in were if it not in are]
    if shortens:
        # The answer to the earlier prompt may be the first to be left out.
        left_out += [it for it in before.reply if it not in are]
    is_new = [it for it in are if it[0] == "s" and it not in were]
    # A summary may be too short for a unique word; it follows what a turn's tools push out.
    is_told = IN_SHORT in str(new) and IN_SHORT not in str(old)
    assert left_out or is_new or is_told or any(it in str(old) for it in BEGINNING), (old, new)


@drawn_cases(
    1, 12, conversation=talks(), seed=st.integers(0, 10**6), pad=st.sampled_from((0, 4, 15))
)
def test_every_prompt_is_whole_behind_its_cut_and_can_be_sent(
    conversation: Conversation, seed: int, pad: int
) -> None:
    """Every prompt is valid under each policy, with all options on (U5, L3, L4, L7, Y16, Y18)."""
    troupe = Troupe(conversation, seed, pad)
    result = asyncio.run(aconverse(conversation, store=f"memory:{uuid4().hex}", **troupe.options))
    assert result.outcome is not None
    check(troupe, result, [call.messages for call in troupe.model.calls])
