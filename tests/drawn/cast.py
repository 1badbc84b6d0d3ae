"""Models, hooks, functions and tools that do what is drawn, while the onlooker looks on.

What is drawn is at once told to an onlooker, so that at every call of a model or a function it is
known, by the rules alone, what may be asked there and then.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.tools import tool

from drawn.talks import AROUND_TOOLS, BEFORE, BEHIND, DONE, FIXED, WON
from duologue.graphs.speakers.replies import ModelReply
from duologue.graphs.speakers.speaker import Speaker
from duologue.graphs.spec.conversation import Conversation
from duologue.graphs.spec.judges import Handoff, Judge, Moderator, SeparateJudge
from duologue.nodes.prompts import judging, summaries
from duologue.nodes.prompts.template import fill_template
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedToolCall
from duologue.tools import Hook
from duologue.tools.registry.hooks import Turn as Given
from oracle.onlooker import Came, Rules, Spent, Table, Turn

ALONE = ("plain", "draft", "flip", "done")
"""What may be said before the rounds."""
HEARD = (*("plain",) * 3, "draft", "flip", "done", "won", "stop")
"""What may be said in the rounds and as last words, beside what a conversation is full of."""
FULL_OF = ("blank", "same", "farewell")
GIVEN = (*("plain",) * 3, "blank", "done", "won")
"""What hooks and functions may say."""


class Said(NamedTuple):
    """A turn that is over."""

    prompt: Prompt | None
    """What the speaker's model was sent first. None: it was not asked."""
    reply: str
    """What was said."""
    called: bool
    """Whether tools were called before."""


@dataclass
class Cast:
    """Says what is drawn, and what by the rules should come of it."""

    conversation: Conversation
    data: st.DataObject
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    chosen: list[str] = field(default_factory=list)
    turns: dict[str, list[Said]] = field(default_factory=dict)
    """The turns of each speaker."""
    summaries: int = 0
    prompt: Prompt | None = None
    """What the model of the turn that is under way was sent first."""
    pending: str | None = None
    """A reply that the speaker gives when it is asked once more."""
    waiting: str | None = None
    """What waits for the hooks behind the speaker."""
    call: str | None = None
    """The kind of a call that waits for these hooks, or for its tool."""
    failed: bool = False
    """Whether the call of a tool came to nothing."""
    wrong: bool = False
    """Whether that is the call's own fault."""
    output: str = ""
    """What the tool gave, or a hook in its place."""
    turn: str = "plain"
    """What the turn is that is under way."""
    calls: int = 0
    named: str | None = None
    """Whom the turn that is under way names to speak next."""
    handed: list[tuple[str, str | None]] = field(default_factory=list)
    """Who has spoken for all to hear, and whom they have named."""
    stop: bool = False
    alone: int = 0
    """Steps in which no model was asked."""
    words: int = 0

    def __post_init__(self) -> None:
        self.rules = Rules.of(self.conversation)
        self.table = Table.laid(self.rules)
        self.heard = (*HEARD, *(self.data.draw(st.sampled_from(FULL_OF), "full of"),) * 20)

    @property
    def spent(self) -> Spent:
        return (("max_calls", self.calls),)

    @property
    def speaker(self) -> Speaker:
        """Whose turn it is."""
        return self.conversation.speaker(self.table.speaking)

    @property
    def registered(self) -> dict[str, Any]:
        """What the conversation names."""

        # What is async runs where it is awaited, and draws there: hooks and functions, too.
        @tool
        async def bell(number: int, note: str = "") -> str:
            """Ring the bell."""
            return self._run(f"Rung {number}{note}.")

        @tool
        async def book(number: int, note: str = "") -> str:
            """Look into the book."""
            return self._run(f"Read {number}{note}.")

        return {
            "tools": [bell, book],
            "hooks": {
                BEFORE: Hook(before_speaker=self._before),
                BEHIND: Hook(after_speaker=self._behind),
                AROUND_TOOLS: Hook(before_tool=self._before_tool, after_tool=self._after_tool),
            },
            "functions": {"drawn": self._function},
            "predicates": {"won": lambda said: said[-1].text.endswith(WON)},
            "orders": {"drawn": self._ordered},
        }

    def draw(self, among: Sequence[Any], label: str) -> Any:  # noqa: ANN401
        return self.data.draw(st.sampled_from(among), label=label)

    # Models.

    def answer(self, prompt: Prompt) -> Line:
        self.calls += 1
        assert not self.table.over
        if prompt[0]["content"] in self._summarisers:
            return self._sums_up(prompt)
        if self.table.question == "choice":
            return self._moderates()
        return self._judges(prompt) if self.table.question else self._speaks(prompt)

    @property
    def _summarisers(self) -> dict[str, str]:
        names = self.rules.names
        return {fill_template(summaries.SUMMARY_ROLE, me=name): name for name in names}

    def _sums_up(self, prompt: Prompt) -> Line:
        assert self._summarisers[prompt[0]["content"]] == self.table.speaking
        assert self.speaker.context.kind == "summary"
        self.summaries += 1
        self.table = self.table.after_summary(self.rules, self.spent)
        return self.draw(("In short, nothing much.", ""), "summary")  # type: ignore[no-any-return]

    async def asked_to_stop(self, _session: str) -> bool:
        return self.stop

    async def _ordered(self, _said: Sequence[BaseMessage], names: Sequence[str]) -> str:
        """Choose who speaks next, as a registered function."""
        assert self.table.question == "choice"
        self.alone += 1
        return self._gives_the_word(self.draw(names, "next")) or ""

    def _moderates(self) -> Line:
        moderator = self.conversation.turn_order
        assert isinstance(moderator, Moderator)
        others = [name for name in self.rules.names if name != self.table.latest]
        name = self.draw((*others, None), "next")
        self._gives_the_word(name)
        if moderator.form == "word":
            return name or "Whoever likes."
        return {"next_speaker": name or "Nobody"}

    def _gives_the_word(self, name: str | None) -> str | None:
        self.table = self.table.after_choice(self.rules, name, stop=self.stop, spent=self.spent)
        self.chosen.append(self.table.speaking)
        return name

    def _between_turns(self) -> None:
        """Go on where nobody is asked who speaks next: of two the other one does."""
        moderated = isinstance(self.conversation.turn_order, Moderator)
        of_two = len(self.rules.names) == len(("one", "other"))
        if moderated and of_two and self.table.question == "choice" and not self.table.over:
            self.alone += 1
            self._gives_the_word(next(n for n in self.rules.names if n != self.table.latest))
        hands_over = isinstance(self.conversation.turn_order, Handoff)
        if hands_over and self.table.question == "choice" and not self.table.over:
            self.alone += 1
            (before, asked), (name, named) = ((None, None), *self.handed)[-2:]
            # Who was asked by name gives the word back; else it goes round.
            self._gives_the_word(named or (before if asked == name else None))

    def _judges(self, prompt: Prompt) -> Line:
        if prompt[-1]["content"] == judging.LIST_OBJECTIVES_LEFT:
            self.table = self.table.between_questions(self.rules, self.spent)
            return "The price."
        asked = self.table.latest
        assert asked is not None
        read = self.draw([True, False, None], f"{asked} complete")
        if read is None and self.table.within != "unread":
            self.table = self.table.between_tries(self.rules, self.spent)
            return "I do not know"
        self.asked.append(asked)
        self.table = self.table.after_verdict(self.rules, read, stop=self.stop, spent=self.spent)
        self._between_turns()
        if read is None:
            return "I do not know"
        judge = self.conversation.judge
        if isinstance(judge, SeparateJudge):
            found = "met" if read else "not_met"
            return {"criterion_1": found} if judge.form == "structured" else f"1: {found}"
        assert isinstance(judge, Judge)
        if judge.form == "structured":
            return {"objectives_left": [], "complete": read}
        return "yes" if read else "no"

    def _speaks(self, prompt: Prompt) -> Line:
        name = self.table.speaking
        if self.pending is not None:
            reply, self.pending = self.pending, None
            return self._naming(reply)
        self.prompt = self.prompt or prompt
        if self._may_call and self.draw((True, False), f"{name} calls"):
            return self._calls()
        # What one says to oneself is nobody's part.
        alone = [turn for turn in ALONE if turn != "flip" or self.table.part != "private"]
        may_say = self.heard if self.table.part in ("rounds", "last_words") else alone
        self.turn = self.draw(may_say, f"{name}'s turn")
        reply = self._words(self.turn)
        # A reply is asked for again when it is blank, another's part or the last one once more.
        again = reply == self.latest(name) and self.turn == "same"
        if not self.table.drafted and (self.turn in ("draft", "flip", "blank") or again):
            self.pending = reply
            self.table = self.table.after_draft(self.rules, self.spent)
            return "" if self.turn == "draft" else reply
        return self._naming(reply)

    def _naming(self, reply: str) -> Line:
        """Give a reply, with a call that names who is next where speakers hand over."""
        others = [name for name in self.rules.names if name != self.table.speaking]
        hands_over = isinstance(self.conversation.turn_order, Handoff) and reply.strip()
        if hands_over and self.table.part == "rounds":
            self.named = self.draw((None, *others), "names")
        to = self.named
        self._give(reply)
        if to is None:
            return reply
        call = ScriptedToolCall(name="hand_off", args={"to": to.upper()}, id="over")
        return Reply(text=reply, tool_calls=(call,))

    def _words(self, turn: str) -> str:
        """A reply of a kind; a plain one is like no other."""
        name = self.table.speaking
        other = next(person for person in self.rules.names if person != name)
        # Without numbers: the same answer to another number would be no repetition.
        self.words += 1
        word = "".join(chr(ord("a") + digit) for digit in divmod(self.words, 26))
        plain = f"Line {word} by {name}."
        return {
            "done": DONE,
            "won": f"{plain} {WON}",
            "blank": "",
            "same": f"I, {name}, have said so before and say it again.",
            "farewell": "Goodbye!",
            "flip": f"{other}: no {word}\n{name}: yes {word}",
        }.get(turn, plain)

    def latest(self, name: str) -> str | None:
        """What this speaker said in its latest turn."""
        found = [line for line in self.said if line.startswith(f"{name}: ")]
        return found[-1].removeprefix(f"{name}: ") if found else None

    # What is said, behind its hooks where there are some.

    def _give(self, reply: str) -> None:
        """Note a reply that is accepted."""
        if BEHIND in self.speaker.hooks:
            self.waiting = reply
            self.table = self.table.after_answer(self.spent)
        else:
            self._say(reply)

    def _say(self, reply: str) -> None:
        name = self.table.speaking
        self.said.append(f"{name}: {reply}")
        tally = self.table.tally
        called = bool(self.table.tool_rounds or tally.call_errors or tally.tool_errors)
        self.turns.setdefault(name, []).append(Said(self.prompt, reply, called))
        self.prompt = None
        self.stop = self.stop or self.turn == "stop"
        turn = Turn(
            text=self.turn if self.turn in (*FULL_OF, "flip") else "plain",
            tokens=frozenset({DONE} if reply == DONE else ()),
            true=frozenset({"won"} if reply.endswith(WON) else ()),
            stop=self.stop,
        )
        if self.table.part in ("rounds", "last_words"):
            self.handed.append((name, self.named))
        self.named = None
        self.table = self.table.after_turn(self.rules, turn, self.spent)
        self._between_turns()

    async def _before(self, turn: Given) -> HumanMessage | AIMessage | None:
        """A hook before a speaker: it changes what is heard, speaks itself, or does nothing."""
        self._begins(turn)
        does = self.draw(("nothing", "nothing", "changes", "speaks"), "before")
        if does == "speaks":
            return AIMessage(self._without_model())
        self.words += 1
        return HumanMessage(f"Heard otherwise {self.words}.") if does == "changes" else None

    async def _function(self, turn: Given) -> str | None:
        """A function that gives a reply, or leaves it to the model or a fixed text."""
        self._begins(turn)
        if self.draw((True, False), "function"):
            return self._without_model()
        if not isinstance(self.speaker.replies[-1], ModelReply):
            self.turn, self.alone = "plain", self.alone + 1
            self._give(FIXED)
        return None

    def _begins(self, turn: Given) -> None:
        """Whoever may speak in a model's place is asked at the beginning of a turn only."""
        assert not self.table.over
        assert turn.speaker == self.table.speaking
        assert self.table.within in (None, "summary")
        assert self.table.question is None

    def _without_model(self) -> str:
        self.turn = self.draw(GIVEN, "given")
        reply = self._words(self.turn)
        self.alone += 1
        self._give(reply)
        return reply

    async def _behind(self, turn: Given, reply: AIMessage) -> AIMessage | None:
        """A hook behind a speaker: it changes what is said, or does nothing."""
        assert not self.table.over
        assert (turn.speaker, self.table.within) == (self.table.speaking, "answer")
        assert reply.text == self.waiting
        self.alone += 1
        self.waiting = None
        if reply.tool_calls:
            self._call()
            return self.draw((None, AIMessage("Let us see.")), "beside")  # type: ignore[no-any-return]
        if self.turn != "plain" or not self.draw((True, False), "behind"):
            self._say(reply.text)
            return None
        self.turn = self.draw(GIVEN, "instead")
        said = self._words(self.turn)
        self._say(said)
        return AIMessage(said)

    # Tools.

    @property
    def _may_call(self) -> bool:
        most = self.conversation.max_tool_rounds
        return bool(self.speaker.tools) and self.table.tool_rounds < most

    def _calls(self) -> Reply:
        self.call = self.draw(("equal", "other", "bell"), "call")
        # Equal calls are of one name, with equal arguments.
        self.wrong = self.call != "equal" and self.draw((False, False, True), "wrong")
        self.failed = self.wrong
        self.words += 1
        number: Any = 0 if self.call == "equal" else self.words
        text = self.draw(("", "Let me see."), "beside")
        if text and BEHIND in self.speaker.hooks:
            self.waiting = text
            self.table = self.table.after_answer(self.spent)
        else:
            self._call()
        name = "bell" if self.call == "bell" else "book"
        if self.wrong and self.call == "other":
            name = "none"
        elif self.wrong:
            number = f"{number} times"
        called = ScriptedToolCall(name=name, args={"number": number}, id=f"c{self.words}")
        return Reply(text=text, tool_calls=(called,))

    def _call(self) -> None:
        assert self.call is not None
        self.table = self.table.after_call(self.rules, self.call, self.spent)
        if self.wrong and not self.table.over and AROUND_TOOLS not in self.speaker.hooks:
            # There is nothing to run.
            self._ran("")

    async def _before_tool(self, turn: Given, called: ToolCall) -> ToolCall | ToolMessage | None:
        """A hook before a tool: it changes its arguments, answers itself, or does nothing."""
        assert not self.table.over
        assert (turn.speaker, self.table.within) == (self.table.speaking, "call")
        does = self.draw(("nothing", "changes", "answers", "fails"), "before tool")
        if does in ("answers", "fails"):
            self.failed, self.wrong = does == "fails", False
            self._ran("Instead.")
            status: Any = "error" if self.failed else "success"
            return ToolMessage("Instead.", tool_call_id="any", status=status)
        if self.wrong:
            self._ran("")
        changed = ToolCall(name=called["name"], args={**called["args"], "note": "!"}, id="any")
        return changed if does == "changes" else None

    def _run(self, found: str) -> str:
        assert not self.table.over
        assert self.table.within == "call"
        self.failed = not self.draw((True, False), "works")
        self._ran(found)
        if self.failed:
            raise ValueError("it does not work")
        return found

    def _ran(self, output: str) -> None:
        self.alone += 1
        self.output = output
        if AROUND_TOOLS in self.speaker.hooks:
            self.table = self.table.after_run(self.spent)
        else:
            self._results()

    async def _after_tool(
        self, turn: Given, called: ToolCall, found: ToolMessage
    ) -> ToolMessage | None:
        """A hook behind a tool: it mends or breaks what it gave, or does nothing."""
        assert not self.table.over
        assert (turn.speaker, self.table.within) == (self.table.speaking, "ran")
        assert (found.status == "error") is self.failed
        self.alone += 1
        does = self.draw(("nothing", "mends", "breaks"), "after tool")
        if does != "nothing":
            # What is broken already stays whose fault it was.
            self.wrong = self.wrong and does == "breaks"
            self.failed, self.output = does == "breaks", "Changed."
        self._results()
        if does == "nothing":
            return None
        status: Any = "error" if self.failed else "success"
        return ToolMessage("Changed.", tool_call_id=str(called["id"]), status=status)

    def _results(self) -> None:
        rang = self.call == "bell" and not self.failed
        # Nothing ends by what is done before the rounds.
        counts = rang and self.table.part in ("rounds", "last_words")
        worked = frozenset({"bell"} if counts else ())
        if self.speaker.return_direct and not self.failed:
            self.table = self.table.after_output(worked, self.spent)
            self.turn, self.alone = "plain", self.alone + 1
            self._give(self.output)
            return
        came = Came(self.wrong, self.failed and not self.wrong, worked=not self.failed)
        self.table = self.table.after_results(self.rules, worked, self.spent, came)
