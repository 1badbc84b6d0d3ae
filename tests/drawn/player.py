"""Models, hooks, functions and tools whose answers depend on their input alone.

A conversation therefore goes the same however often it is interrupted. Each can be made to fail at
the first time that it is asked something.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar
from uuid import uuid4

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.tools import tool

from drawn.talks import AROUND_TOOLS, BEFORE, BEHIND, DONE, WON
from duologue.graphs import (
    Conversation,
    DuologueError,
    Handoff,
    Moderator,
    Result,
    SeparateJudge,
    Session,
    astream,
)
from duologue.graphs.events import Event
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.tools import Hook, Turn
from support.log import fields_of
from support.prompts import PROMPTS, fill

T = TypeVar("T")

MENDED = PROMPTS["rewrite_reply"].partition("}")[2]
"""The ending of each request to repair a reply."""


class Broken(Exception):  # noqa: N818  # it is no error of the project's
    """An error that occurs once."""


@dataclass
class Player:
    """A player of all parts of a conversation."""

    conversation: Conversation
    seed: int
    fails: int = 0
    """One of so many questions fails at first, of any kind. None fails if 0."""
    unlike: bool = False
    """Whether all texts differ, even for a repeated question. Such a conversation cannot be
    interrupted; no speaker says that anything is done, and no final message is blank.
    """
    pad: str = ""
    """Text after each plain message."""
    failed: set[str] = field(default_factory=set)
    """The questions that have failed already."""
    answered: list[Prompt] = field(default_factory=list)
    """The prompts of the model calls that were answered, in order."""
    _words: int = 0

    @property
    def registered(self) -> dict[str, Any]:
        """The objects that the conversation names."""

        @tool
        def bell(word: str) -> str:
            """Ring the bell."""
            return self._found(word)

        @tool
        def book(word: str) -> str:
            """Look into the book."""
            return self._found(word)

        return {
            "tools": [bell, book],
            "hooks": {
                BEFORE: Hook(before_speaker=self._before),
                BEHIND: Hook(after_speaker=self._behind),
                AROUND_TOOLS: Hook(before_tool=self._before_tool, after_tool=self._after_tool),
            },
            "functions": {"drawn": self._function},
            "predicates": {"won": self._won},
            "orders": {"drawn": self._ordered},
        }

    def answer(self, prompt: Prompt) -> Line:
        """Answer as a model."""
        given = json.dumps(prompt)
        self._may_fail("model", given)
        self.answered.append(prompt)
        system, question = str(prompt[0]["content"]), str(prompt[-1]["content"])
        if any(system == self._summariser(name) for name in self.conversation.names):
            return f"In short {self._word('summary', given)}."
        judge, order = self.conversation.judge, self.conversation.turn_order
        if question.startswith("What was said so far:"):
            if PROMPTS["judge_criteria"] in question:
                assert isinstance(judge, SeparateJudge)
                is_met = "not_met" if self.unlike else "met"
                found = self._one_of("judge", given, (is_met, "not_met", "what"))
                structured: Line = {"criterion_1": found}
                return structured if judge.form == "structured" else f"1: {found}"
            assert isinstance(order, Moderator)
            name = self._one_of("choice", given, (*self.conversation.names, "Nobody"))
            return name if order.form == "word" else {"next_speaker": name}
        if question == PROMPTS["judge_own_task"]:
            is_complete = not self.unlike and self._one_of("verdict", given, (True, *[False] * 5))
            return {"objectives_left": [], "complete": is_complete}
        if question in (PROMPTS["list_objectives_left"], PROMPTS["is_task_complete"]):
            says_yes = "no" if self.unlike else "yes"
            return self._one_of("verdict", given, (says_yes, "no", "no", "no", "Hm."))
        is_new = prompt[-1]["role"] == "user" and not question.endswith(MENDED)
        return self._speaks(given, may_be_blank=is_new or not self.unlike)

    def _speaks(self, given: str, *, may_be_blank: bool) -> Line:
        word = self._word("speech", given)
        does = self._one_of("speech", given, (*["plain"] * 6, "call", "call", "blank", "won", DONE))
        if does == "call":
            hands_over = isinstance(self.conversation.turn_order, Handoff)
            more = ("hand_off",) * (3 * hands_over)
            name = self._one_of("tool", given, ("bell", "book", "none", *more))
            text = self._one_of("beside", given, ("", f"Let me see {word}."))
            args = {"word": word}
            if name == "hand_off":
                args = {"to": self._one_of("next", given, self.conversation.names), "message": word}
            call = ScriptedToolCall(name=name, args=args, id=word)
            return Reply(text=text, tool_calls=(call,))
        plain = f"I say {word}.{self.pad}"
        done = plain if self.unlike else DONE
        blank = "" if may_be_blank else plain
        return {"blank": blank, "won": f"{plain} {WON}", DONE: done}.get(does, plain)

    def _summariser(self, name: str) -> str:
        return fill(PROMPTS["summary_role"], me=name)

    def _before(self, turn: Turn) -> HumanMessage | AIMessage | None:
        given = self._asked("before", turn)
        word = self._word("before", given)
        does = self._one_of("before", given, ("nothing", "nothing", "changes", "speaks"))
        if does == "speaks":
            return AIMessage(f"A hook says {word}.")
        return HumanMessage(f"Heard otherwise: {word}.") if does == "changes" else None

    def _function(self, turn: Turn) -> str | None:
        given = self._asked("function", turn)
        said = f"A function says {self._word('function', given)}."
        return self._one_of("function", given, (None, said))

    def _behind(self, turn: Turn, reply: AIMessage) -> AIMessage | None:
        given = self._asked("behind", turn, reply.text)
        changed = AIMessage(f"{reply.text} Indeed: {self._word('behind', given)}.")
        return self._one_of("behind", given, (None, changed))

    def _before_tool(self, turn: Turn, called: ToolCall) -> ToolCall | ToolMessage | None:
        given = self._asked("before tool", turn, str(called["args"]))
        changed = ToolCall(name=called["name"], args={"word": "another"}, id=called["id"])
        instead = ToolMessage("Instead.", tool_call_id="any")
        return self._one_of("before tool", given, (None, changed, instead))

    def _after_tool(self, turn: Turn, called: ToolCall, found: ToolMessage) -> ToolMessage | None:
        given = self._asked("after tool", turn, str(called["args"]), found.text)
        changed = ToolMessage(f"{found.text} Indeed.", tool_call_id="any")
        return self._one_of("after tool", given, (None, changed))

    def _found(self, word: str) -> str:
        if self._one_of("works", word, (True, False)):
            return f"Found {self._word('found', word)}."
        raise Broken("it never works")

    def _won(self, said: Sequence[BaseMessage]) -> bool:
        self._may_fail("won", str(len(said)))
        return said[-1].text.endswith(WON)

    def _ordered(self, said: Sequence[BaseMessage], names: Sequence[str]) -> str:
        given = str([message.text for message in said])
        self._may_fail("order", given)
        return self._one_of("order", given, tuple(names))

    def _asked(self, kind: str, turn: Turn, *more: str) -> str:
        given = json.dumps([turn.speaker, *[(one.type, one.text) for one in turn.messages], *more])
        self._may_fail(kind, given)
        return given

    def _may_fail(self, kind: str, given: str) -> None:
        key = self._hash(kind, given)
        if self.fails and key not in self.failed and int(key, 16) % self.fails == 0:
            self.failed.add(key)
            raise Broken(f"the {kind} fails once")

    def _hash(self, kind: str, given: str) -> str:
        return hashlib.sha256(f"{self.seed} {kind} {given}".encode()).hexdigest()

    def _one_of(self, kind: str, given: str, among: Sequence[T]) -> T:
        return among[int(self._hash(f"one {kind}", given), 16) % len(among)]

    def _word(self, kind: str, given: str) -> str:
        self._words += 1
        number = self._words if self.unlike else 0
        digits = self._hash(f"word {kind} {number}", given)[:8]
        # Letters replace the digits: with numbers, the same answer to another number would be no
        # repetition.
        return "".join(chr(ord("a") + int(digit, 16)) for digit in digits)


def too_long(
    prompt_tokens: int, limit: int, *, like: Literal["openai", "llama.cpp"] = "openai"
) -> Reply:
    """Return the reply of a server that refuses a prompt as longer than its model's context."""
    if like == "openai":
        message = (
            f"The maximum context length is {limit} tokens, your messages resulted in "
            f"{prompt_tokens} tokens."
        )
        return Reply(error=400, message=message, code="context_length_exceeded")
    fields = {
        "code": 400,
        "message": "the request is longer than the context",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": prompt_tokens,
        "n_ctx": limit,
    }
    return Reply(error=400, body={"error": fields})


@dataclass
class Narrow(Player):
    """A player whose models refuse prompts that are longer than their context."""

    characters: int = 10**9
    messages: int = 10**9
    like: Literal["openai", "llama.cpp"] = "openai"
    refused: list[Prompt] = field(default_factory=list)

    def takes(self, prompt: Prompt) -> bool:
        size = sum(len(str(one["content"])) for one in prompt)
        return size <= self.characters and len(prompt) <= self.messages

    def answer(self, prompt: Prompt) -> Line:
        if not self.takes(prompt):
            self.refused.append(prompt)
            return too_long(len(str(prompt)), self.characters, like=self.like)
        return super().answer(prompt)


def cuts_of(result: Result) -> list[BaseMessage]:
    """Return the log's messages that omit text which a model has refused."""
    read = [(one, fields_of(one)) for one in result.messages]
    return [one for one, about in read if about.kind == "summary" and about.problem is not None]


async def followed(
    player: Player, *, store: str | None = None
) -> tuple[Result, list[Event], ScriptedChatModel]:
    """Run the conversation and resume it after each failure; return result, events and model."""
    store = store or f"memory:{uuid4().hex}"
    model = ScriptedChatModel(script=player.answer)
    options: dict[str, Any] = {"model": model, **player.registered}
    session = Session("s", store=store)
    events: list[Event] = []
    run = astream(player.conversation, session=session, **options)
    while True:
        try:
            async for event in run:
                events.append(event)
        except (Broken, DuologueError) as error:
            if not (isinstance(error, Broken) or isinstance(error.__cause__, Broken)):
                raise
            run = session.astream(**options)
            continue
        return await Session("s", store=store).astate(), events, model
