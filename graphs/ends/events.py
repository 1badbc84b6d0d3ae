"""Ends that one event meets: a done token, a call of a tool, no code, a function, a request.

A done token is a word that ends the conversation when a speaker says it. `graphs.log.heard_text`
decides which messages contain one.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from pydantic import Field

from ..common.data import Accepts, Mark, Name, Named, NamedObject, Thing
from ..speakers.speaker import Speaker
from ..text.done_words import Match, default_match
from .end import (
    AtEnd,
    BaseEnd,
    ConversationLike,
    CountedMessage,
    EndStep,
    Facts,
    FactTally,
    Metadata,
    Strength,
    check_name,
    doers,
    is_public_speech,
    is_tool_result,
    leaves,
    listed,
)


class _SpeakersAct(BaseEnd):
    """Base of the end conditions that a speaker meets by an act: a word, or a call of a tool."""

    def list_doers(self, facts: Facts) -> list[str]:
        """Return the speakers whose act counts now."""
        raise NotImplementedError

    def is_met(self, facts: Facts) -> bool:
        return bool(self.list_doers(facts))

    @classmethod
    def list_all_doers(cls, at: AtEnd) -> list[str]:
        """Return the speakers who have met the end conditions of this class."""
        return [name for end in at.met_of(cls) for name in end.list_doers(at.facts)]

    @classmethod
    def find_ender(cls, at: AtEnd) -> str:
        return cls.list_all_doers(at)[-1]


class DoneToken(_SpeakersAct):
    """A word that ends the conversation when a speaker says it (CAMEL's done token).

    The word does not count in code, in a question, in a thought, or if a sentence only quotes it.
    The other speakers hear the message without the word. Tokens joined by ``&`` may be said at
    different times.
    """

    kind: Literal["done_token"] = "done_token"
    """The kind of end."""
    token: Mark = Field(kw_only=False)
    """The word. Letter case is ignored if the word is the whole message or the whole last line."""
    match: Match | None = None
    """The positions at which the word counts. ``alone``: as the whole message or last line, with or
    without Markdown around it, or alone on another line. ``last``: as the whole message or last
    line, or at the end of a last sentence that is not about the word, as in "Thank you!
    ###STOP###". ``anywhere``: at any position. If None: ``last`` if the word has a character that
    is neither a letter nor a digit, otherwise ``alone``."""
    by: Name | None = None
    """The name of the speaker whose word counts. Any speaker if None."""
    answered: bool | Literal["with_text"] = False
    """Whether the word counts only after the next other speaker has replied and finished its tool
    calls. This reply is the last message and is allowed even beyond a cap. ``with_text``: only if
    the message has other text; a message that is only the word ends the conversation at once."""
    meaning: Mark | None = None
    """The meaning of the word as a predicate of the speaker, such as "gave up". The outcome says
    it. "said the done token" if None."""

    strength: ClassVar = Strength.SAID
    report: ClassVar = "A speaker said a done token"

    @property
    def counts(self) -> Match:
        """Return the effective match mode: ``match``, or the token's default."""
        return self.match or default_match(self.token)

    def list_doers(self, facts: Facts) -> list[str]:
        waiting = facts.tokens_unanswered if self.answered else ()
        said = tuple(pair for pair in facts.tokens_said if pair not in waiting)
        return doers(self.token, self.by, said)

    def waits_for_answer(self, token: str, speaker: str, *, has_text: bool) -> bool:
        """Return whether this speaker's token counts only after another speaker has answered.

        Args:
            token: The token.
            speaker: The speaker who said it.
            has_text: Whether the message contains other text.
        """
        waits = has_text if self.answered == "with_text" else self.answered
        return waits and self.token == token and self.by in (None, speaker)

    def describe(self) -> str:
        return f"{self.token} is answered" if self.answered else f"says {self.token}"

    def describe_end(self) -> str:
        owner = "'s" if self.answered else ""
        return f"when {self.by or 'any speaker'}{owner} {self.describe()}"

    def check(self, conversation: ConversationLike, path: str) -> None:
        check_name(conversation, f"{path}.by", self.by)

    def comes_of(self, speaker: Speaker) -> bool:
        if self.answered:
            # This speaker answers the token of another one.
            return self.by != speaker.name
        if self.by is not None:
            return self.by == speaker.name
        # Fixed texts and the output of code do not count.
        kinds = ("model", "human", "function", "agent")
        return any(reply.kind in kinds for reply in speaker.replies)

    def most_answers(self, speakers: int) -> int:
        # One answer for each speaker that may say the token.
        return (1 if self.by else speakers) if self.answered else 0

    @classmethod
    def explain(cls, at: AtEnd) -> str:
        met = at.met_of(DoneToken)
        meanings = [(listed(end.list_doers(at.facts)), end.meaning) for end in met]
        if all(meaning is not None for _, meaning in meanings):
            return " and ".join(f"{who} {meaning}" for who, meaning in meanings)
        is_answered = all(end.answered is True for end in met)
        answered = " and got an answer" if is_answered else ""
        return f"{listed(cls.list_all_doers(at))} said the done token{answered}"

    @classmethod
    def steps(cls, step: CountedMessage) -> Iterator[EndStep]:
        for act in step.facts.tokens_said:
            if act not in step.before.tokens_said:
                yield EndStep("said", act[1], f"said {act[0]}", act=act)
        for act in step.before.tokens_unanswered:
            if act not in step.facts.tokens_unanswered:
                text = f"answered {act[1]}, who said {act[0]}"
                yield EndStep("answered", step.about.speaker, text, act=act)


class Predicate(BaseEnd):
    """An end that is met when a registered function returns true after a turn."""

    kind: Literal["predicate"] = "predicate"
    """The kind of end."""
    name: Named = Field(kw_only=False)
    """The name of the registered function. It receives the messages so far, oldest first."""

    strength: ClassVar = Strength.SAID
    report: ClassVar = "A predicate ended it"

    if TYPE_CHECKING:

        def __init__(self, name: str | Callable[..., Any], **fields: Any) -> None: ...

    def is_met(self, facts: Facts) -> bool:
        return self.name in facts.predicates

    def describe(self) -> str:
        return f"{self.name}()"

    def describe_end(self) -> str:
        return f"when {self.name}() returns true"

    def comes_of(self, speaker: Speaker) -> bool:
        return True

    def registered(self) -> Iterator[tuple[str, str, str]]:
        yield "name", "predicates", self.name

    @classmethod
    def explain(cls, at: AtEnd) -> str:
        names = [repr(end.name) for end in at.met_of(Predicate)]
        return f"the predicate {listed(names)} returned true"


class StopRequested(BaseEnd):
    """A hard stop at a stop request from outside, after the current turn.

    It applies to every conversation. If `EndChat.when` names it, a request ends the conversation
    only in the combination that is written there.
    """

    kind: Literal["stop_requested"] = "stop_requested"
    """The kind of end."""

    strength: ClassVar = Strength.HARD
    report: ClassVar = "A stop was requested"
    explanation: ClassVar = "a stop was requested"

    def is_met(self, facts: Facts) -> bool:
        return facts.stop_requested

    @classmethod
    def is_met_unnamed(cls, conversation: ConversationLike, facts: Facts) -> bool:
        # If the spec names this end, only the spec's combination counts.
        return facts.stop_requested and not any(
            isinstance(end, cls) for _, end in leaves(conversation.end_chat.when)
        )

    def describe(self) -> str:
        return "a request to stop"


class ToolCalled(_SpeakersAct):
    """An end that is met when a tool has been called and has answered without an error."""

    kind: Literal["tool_called"] = "tool_called"
    """The kind of end."""
    tool: Accepts[Named, Thing] = Field(kw_only=False)
    """The tool: its name, or in Python the tool or function itself."""
    by: Name | None = None
    """The speaker whose call counts. Any speaker that has the tool if None."""

    strength: ClassVar = Strength.SAID
    report: ClassVar = "An ending tool was called"
    comes_of_tools: ClassVar = True

    def list_doers(self, facts: Facts) -> list[str]:
        return doers(self.tool, self.by, facts.tools_called)

    def describe(self) -> str:
        return f"{self.tool} was called"

    def describe_end(self) -> str:
        return f"when {self.by or 'any speaker'} calls {self.tool}"

    def check(self, conversation: ConversationLike, path: str) -> None:
        check_name(conversation, f"{path}.by", self.by)
        who = conversation.speakers if self.by is None else (conversation.speaker(self.by),)
        if not any(self.tool in speaker.tools for speaker in who):
            lacks = "no speaker has a tool" if self.by is None else f"{self.by} has no tool"
            raise ValueError(f"{path}.tool: {lacks} {self.tool!r}; add it to a speaker's tools")

    def comes_of(self, speaker: Speaker) -> bool:
        return self.tool in speaker.tools and self.by in (None, speaker.name)

    def registered(self) -> Iterator[tuple[str, str, str]]:
        # A plain name is checked with the speakers' tools.
        if isinstance(self.tool, NamedObject):
            yield "tool", "tools", self.tool

    @classmethod
    def tally(cls, conversation: ConversationLike) -> "_EndingTools | None":
        ends = [end for _, end in leaves(conversation.end_chat.when) if isinstance(end, cls)]
        return _EndingTools({end.tool for end in ends}) if ends else None

    @classmethod
    def explain(cls, at: AtEnd) -> str:
        tools = [repr(end.tool) for end in at.met_of(ToolCalled)]
        return f"{listed(cls.list_all_doers(at))} called the tool {listed(tools)}"

    @classmethod
    def steps(cls, step: CountedMessage) -> Iterator[EndStep]:
        ends = [end for _, end in leaves(step.conversation.end_chat.when) if isinstance(end, cls)]
        for act in step.facts.tools_called:
            is_new = act not in step.before.tools_called
            if is_new and any(doers(end.tool, end.by, (act,)) for end in ends):
                yield EndStep("called", act[1], f"called {act[0]}", act=act)


class _EndingTools(FactTally):
    """A counter of the ending tools that have answered without an error, each with its caller."""

    def __init__(self, tools: set[str]) -> None:
        self._tools = tools
        self._names: dict[str | None, str] = {}
        self._called: dict[tuple[str, str], None] = {}

    def add(self, message: BaseMessage, about: Metadata) -> None:
        if isinstance(message, AIMessage) and about.is_aloud:
            self._names |= {call["id"]: call["name"] for call in message.tool_calls}
        elif isinstance(message, ToolMessage) and is_tool_result(about):
            name = about.tool or self._names.get(message.tool_call_id)
            if message.status == "success" and name in self._tools:
                self._called[str(name), about.speaker or ""] = None

    def facts(self) -> Mapping[str, Any]:
        return {"tools_called": tuple(self._called)}


class NoCodeBlock(BaseEnd):
    """An end at a message without code, for a speaker whose code is run (Lagent's coder)."""

    kind: Literal["no_code_block"] = "no_code_block"
    """The kind of end."""
    by: Name = Field(kw_only=False)
    """The name of the speaker. The end is met only right after its message without code."""

    strength: ClassVar = Strength.SAID
    report: ClassVar = "A speaker wrote no more code"
    explanation: ClassVar = "{by} wrote no more code"

    def is_met(self, facts: Facts) -> bool:
        return facts.no_code_by == self.by

    def describe(self) -> str:
        return "no code"

    def describe_end(self) -> str:
        return f"when {self.by} writes no code"

    def check(self, conversation: ConversationLike, path: str) -> None:
        check_name(conversation, f"{path}.by", self.by)
        if not any(one.runs_code for one in conversation.speakers):
            raise ValueError(f'{path}: no speaker runs code; add "code" to a speaker\'s replies')

    def comes_of(self, speaker: Speaker) -> bool:
        return self.by == speaker.name

    @classmethod
    def find_ender(cls, at: AtEnd) -> str | None:
        return at.speaker

    @classmethod
    def steps(cls, step: CountedMessage) -> Iterator[EndStep]:
        who = step.facts.no_code_by
        ends = [end for _, end in leaves(step.conversation.end_chat.when) if isinstance(end, cls)]
        if is_public_speech(step.about) and any(end.by == who for end in ends):
            yield EndStep("said", who, "wrote no code")
