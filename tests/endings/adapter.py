"""Adapters that decide when a recorded dialogue ends: the protocol, and duologue's own rules."""

from collections.abc import Sequence
from typing import Any, Protocol

from langchain_core.messages import AIMessage, AnyMessage

from duologue.graphs import Conversation
from duologue.graphs.kinds.role_play import INSTRUCTION, SOLUTION
from duologue.graphs.rules.log_counter import LogCounter
from duologue.graphs.rules.position import Phase, Position
from duologue.graphs.rules.transitions import Decision, Node, decide, record_pause, record_turn
from duologue.graphs.rules.turns import Dialogue as RulesDialogue, NextTurn
from duologue.nodes.turn.checks import ReplyCheck, check_repeated_calls
from endings.dialogue import Call, Dialogue, Turn
from support.log import Failure, Source, Stage, make_line, make_metadata, make_tool_line

FORMS = {"instruction": INSTRUCTION, "solution": SOLUTION}

MANY = 10_000
"""A cap that no record reaches."""


class Adapter(Protocol):
    """A way to decide when a dialogue ends. Each dialogue gets a new instance."""

    calls: int
    """Number of model calls made to decide."""
    tokens: int
    """Tokens of these calls."""

    def stops(self, messages: Sequence[Turn]) -> str | None:
        """Return why the dialogue ends after these turns, or None if it continues.

        It is called after every turn, each time with one turn more.
        """
        ...


def conversation_of(dialogue: Dialogue, *, answered: bool = False, **more: Any) -> Conversation:
    """Return the conversation that a user would write for a dialogue: all guards are on.

    Args:
        dialogue: The dialogue.
        answered: Whether its done tokens count only once they are answered.
        **more: Other fields of the conversation.
    """
    words = [
        {"kind": "done_token", "token": one.token, "by": one.by, "answered": answered}
        for one in dialogue.words
        if not one.terminates
    ]
    proxies = [
        {
            "kind": "human",
            "human_input_mode": "NEVER",
            "termination": one.token,
            "max_consecutive_auto_reply": MANY,
        }
        for one in dialogue.words
        if one.terminates
    ]
    tools = [{"kind": "tool_called", "tool": one.name, "by": one.by} for one in dialogue.tools]
    called: dict[str, set[str]] = {name: set() for name in dialogue.names}
    for turn in dialogue.turns:
        called[turn.speaker] |= {call.name for call in turn.calls}
    for tool in dialogue.tools:
        for name in (tool.by,) if tool.by else dialogue.names:
            called.setdefault(name, set()).add(tool.name)
    return Conversation.model_validate(
        {
            "task": "Talk.",
            "speakers": [
                {
                    "name": name,
                    "format": FORMS.get(dialogue.forms.get(name, "")),
                    "tools": sorted(called[name]),
                    "replies": [*proxies, "model"],
                }
                for name in called
            ],
            "end_chat": {"when": [*words, *tools] or None, "max_iterations": MANY},
            "max_tool_rounds": MANY,
            **more,
        }
    )


class Rules:
    """duologue's rules, fed directly: no graph runs and no model is called.

    `whole.stop_of` has the same conversation by the graph; both must agree.

    Args:
        dialogue: The dialogue.
        answered: Whether its done tokens count only once they are answered.
        conversation: The conversation to which the turns belong. If None, the conversation that a
            user would write for the dialogue.
    """

    calls = 0
    tokens = 0

    def __init__(
        self,
        dialogue: Dialogue,
        *,
        answered: bool = False,
        conversation: Conversation | None = None,
    ) -> None:
        self._conversation = conversation or conversation_of(dialogue, answered=answered)
        self._counted = LogCounter(self._conversation)
        self.log: list[AnyMessage] = []
        """The log after the turns so far."""
        self.position = Position()
        """The position after the turns so far."""
        self._read = 0
        self._reason: str | None = None

    def stops(self, messages: Sequence[Turn]) -> str | None:
        """Return the reason to end after these turns, or None."""
        for turn in messages[self._read :]:
            self._read += 1
            self._reason = self._reason or self._after(turn)
        return self._reason

    def _after(self, turn: Turn) -> str | None:
        if not turn.calls:
            self._add(self._speech(turn))
            dialogue = RulesDialogue(self._conversation, self.position)
            self.position = record_turn(dialogue, NextTurn(turn.speaker, Stage.ROUNDS))
            return self._decide()
        about = make_metadata("tool_calls", speaker=turn.speaker)
        calls: list[Any] = [
            {
                "type": "tool_call",
                "id": f"{self._read}-{place}",
                "name": one.name,
                "args": one.arguments,
            }
            for place, one in enumerate(turn.calls)
        ]
        message = make_line(len(self.log), turn.text, about, tool_calls=calls)
        if self._is_asked_again(message):
            # The next recorded turn is the answer to the request.
            here = Decision(node=Node.TOOL_EXECUTOR, speaker=turn.speaker)
            self.position = record_pause(self.position, here, Phase.REJECTED)
            return None
        self._add(message)
        reason = self._within(turn, Phase.CALLED)
        if reason is not None:
            return reason
        for place, one in enumerate(turn.calls):
            self._add(self._result(turn, one, f"{self._read}-{place}"))
        return self._within(turn, Phase.RETURNED)

    def _is_asked_again(self, calls: AnyMessage) -> bool:
        assert isinstance(calls, AIMessage)
        found = check_repeated_calls(self._conversation, calls, self._counted.tallies)
        return found is not None and not self.position.asked_again

    def _speech(self, turn: Turn) -> AnyMessage:
        if turn.automatic:
            return make_line(len(self.log), turn.text, speaker=turn.speaker, source=Source.TEXT)
        speaker = self._conversation.speaker(turn.speaker)
        found = ReplyCheck(self._conversation, speaker, self.log).check(turn.text)
        # A speaker that is asked again repeats the recorded line, which is then accepted.
        flaw = found.problem.flaw if found.problem else None
        return make_line(len(self.log), found.text, speaker=turn.speaker, flaw=flaw)

    def _result(self, turn: Turn, call: Call, call_id: str) -> AnyMessage:
        return make_tool_line(
            len(self.log),
            call.result,
            speaker=turn.speaker,
            call_id=call_id,
            failure=Failure.TOOL if call.failed else None,
        )

    def _add(self, message: AnyMessage) -> None:
        self.log.append(message)
        self._counted.add(message)

    def _within(self, turn: Turn, phase: Phase) -> str | None:
        here = Decision(node=Node.TOOL_EXECUTOR, speaker=turn.speaker)
        self.position = record_pause(self.position, here, phase)
        return self._decide()

    def _decide(self) -> str | None:
        facts = self._counted.facts()
        self.position = self.position.model_copy(update={"facts": facts})
        decision = decide(RulesDialogue(self._conversation, self.position))
        return decision.reasons[0].value if decision.node is Node.END else None
