"""The node that runs what a speaker has called: tools, or the code it has heard.

Each call is a task of LangGraph's of its own: what has finished is recorded, and not run again
after a kill; what was in flight is, under the same call id. Calls of tools run side by side, those
that run code one after another; results enter the log in the order of the calls. Only a hook that
fails raises: what the tools gave is kept, and resuming runs the hooks again.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.messages.tool import ToolCall
from langchain_core.tools import BaseTool
from langgraph.func import task

from duologue.graphs.end_chat import paused
from duologue.graphs.errors import SpecError
from duologue.graphs.log import Failure, Kind, line, result
from duologue.graphs.position import Event
from duologue.graphs.sandbox import Language
from duologue.graphs.speaker import Speaker
from duologue.graphs.state import State
from duologue.nodes.calling import Answer, given, run_call, tool_state, unknown_tool
from duologue.nodes.hooking import Hooks, after_tool, before_tool
from duologue.nodes.interpreter import Interpreter
from duologue.nodes.outputs import calling, exit_code_of
from duologue.nodes.replying import turn_of
from duologue.nodes.resources import Moment, Resources
from duologue.tools.sandbox import Ran
from duologue.tools.state import RunCode, languages_of, timeout_of

Answers = Mapping[str, Answer]
"""What came of each call, by its id, in the order of the calls."""

_SLACK = 30.0
"""How many seconds later than the sandbox a call that runs code is given up."""


async def tool_executor(state: State, resources: Resources) -> dict[str, Any]:
    """Run the calls of the newest message, or the hooks behind them.

    Args:
        state: The session's state.
        resources: Models and functions.

    Returns:
        The update of the state.

    Raises:
        SpecError: A hook failed.
    """
    moment = await Moment.of(state, resources)
    speaker = moment.conversation.speaker(moment.turn.speaker)
    hooks = resources.registry.hooks_of(speaker)
    message = calling(moment.log)
    if moment.position.event is Event.RAN:
        answers = await _past_hooks(moment, speaker, hooks, message)
        return await _returned(moment, speaker, message, answers)
    before = state.get("interpreter") or {}
    interpreter = Interpreter(moment.conversation.sandbox, before)
    answers = await _Run(moment, speaker, hooks, interpreter).all_of(message)
    if any(hook.after_tool for _, hook in hooks):
        ran = paused(moment.conversation, moment.position, Event.RAN)
        update = await moment.step(ran, _lines(moment, speaker, answers, final=False))
    else:
        update = await _returned(moment, speaker, message, answers)
    kept = interpreter.dumped()
    return update | ({"interpreter": kept} if kept not in ({}, before) else {})


@task
async def call_tool(run: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    """Run one call; LangGraph records what it gives."""
    return await run()


class _Call(NamedTuple):
    """A call, as the hooks in front of it have made it."""

    call: ToolCall
    changed: bool
    """Whether they have changed its arguments."""
    instead: ToolMessage | None
    """What one of them has answered in the tool's place."""

    @property
    def id(self) -> str:
        """The id, by which its result is found."""
        return str(self.call["id"])


@dataclass(frozen=True)
class _Run:
    """One run of all calls of a message."""

    moment: Moment
    speaker: Speaker
    hooks: Hooks
    interpreter: Interpreter

    async def all_of(self, message: AIMessage) -> Answers:
        """Run the calls, the hooks before them first; give what came of each."""
        is_code = line(message).kind is Kind.CODE
        calls = await self._hooked(message, is_code=is_code)
        run = self._block if is_code else self._tool
        chained = [one for one in calls if is_code or self._runs_code(one.call)]
        # LangGraph knows a task by its place: these begin now, the others one after another.
        begun = {one.id: self._begin(run, one) for one in calls if one not in chained}
        found: dict[str, Answer] = {}
        for one in chained:
            record = await self._begin(run, one)
            self.interpreter.keep(record["kept"])
            found[one.id] = answer = Answer.read(record["answer"])
            if is_code and exit_code_of(answer.parsed, failed=answer.failure is not None):
                # The first that fails is the last (AutoGen).
                break
        for call_id, running in begun.items():
            found[call_id] = Answer.read((await running)["answer"])
        answers = {one.id: found[one.id] for one in calls if one.id in found}
        for broken in message.invalid_tool_calls:
            text = broken["error"] or f"The call of {broken['name']} can't be read."
            answers[str(broken["id"])] = Answer(text, Failure.CALL)
        return answers

    async def _hooked(self, message: AIMessage, *, is_code: bool) -> list[_Call]:
        """Run the hooks in front of all calls: one that fails must not cost what a tool does."""
        if not self.hooks:
            return [_Call(call, changed=False, instead=None) for call in message.tool_calls]
        turn = turn_of(self.moment, self.speaker, self.moment.log)
        calls = []
        for asked in message.tool_calls:
            call, instead = await before_tool(self.hooks, turn, asked)
            if is_code and not isinstance(call["args"].get("code"), str):
                raise SpecError(
                    f"a hook of {self.speaker.name!r} failed in before_tool: its code is no text"
                )
            calls.append(_Call(call, call["args"] != asked["args"], instead))
        return calls

    def _begin(
        self, run: Callable[[ToolCall], Awaitable[Answer]], one: _Call
    ) -> Awaitable[dict[str, Any]]:
        async def record() -> dict[str, Any]:
            answer = await run(one.call) if one.instead is None else given(one.instead)
            answer = answer._replace(arguments=one.call["args"] if one.changed else None)
            return {"answer": answer.recorded(), "kept": self.interpreter.dumped()}

        return call_tool(record)

    def _runs_code(self, call: ToolCall) -> bool:
        tool = self.moment.resources.registry.tool(call["name"])
        return tool is not None and bool(languages_of(tool))

    async def _tool(self, call: ToolCall) -> Answer:
        registry, conversation = self.moment.resources.registry, self.moment.conversation
        allowed = self.speaker.tools if self.speaker.tool_choice != "none" else ()
        tool = registry.tool(call["name"]) if call["name"] in allowed else None
        if tool is None:
            return unknown_tool(call["name"], allowed)
        seconds = timeout_of(tool)
        if seconds is None:
            # What runs code is ended by the sandbox, which says so.
            runs_code = bool(languages_of(tool))
            seconds = (
                conversation.sandbox.seconds + _SLACK if runs_code else conversation.tool_timeout
            )
        state = tool_state(self.moment, self.speaker, self._run_code_for(tool))
        return await run_call(call, tool, state, seconds)

    def _run_code_for(self, tool: BaseTool) -> RunCode:
        may = languages_of(tool)

        async def run_code(language: Language, code: str) -> Ran:
            if language not in may:
                raise SpecError(
                    f"the tool {tool.name!r} runs {language}: give it "
                    f'metadata={{"sandbox": ["{language}"]}}'
                )
            return await self.interpreter.run(language, code)

        return run_code

    async def _block(self, call: ToolCall) -> Answer:
        return await self.interpreter.run_block(call["name"], call["args"]["code"])


async def _past_hooks(
    moment: Moment, speaker: Speaker, hooks: Hooks, message: AIMessage
) -> Answers:
    """Run the hooks behind the tools; give what they make of each result."""
    turn = turn_of(moment, speaker, moment.log)
    calls: Mapping[str | None, ToolCall] = {call["id"]: call for call in message.tool_calls}
    answers: dict[str, Answer] = {}
    for found in moment.log[moment.log.index(message) + 1 :]:
        if not isinstance(found, ToolMessage):
            # What somebody was told meanwhile.
            continue
        answer, call = given(found), calls.get(found.tool_call_id)
        if call is not None:
            run = (
                call if answer.arguments is None else ToolCall(**{**call, "args": answer.arguments})
            )
            seen = ToolMessage(
                found.text, tool_call_id=found.tool_call_id, name=call["name"], status=found.status
            )
            made = given(await after_tool(hooks, turn, run, seen))
            failure = made.failure and (answer.failure or made.failure)
            answer = answer._replace(text=made.text, failure=failure)
        # Else its arguments could not be read, so no tool was called.
        answers[found.tool_call_id] = answer
    return answers


async def _returned(
    moment: Moment, speaker: Speaker, message: AIMessage, answers: Answers
) -> dict[str, Any]:
    """Write what came of the calls, for the speaker to answer, or to say as it is."""
    is_code = line(message).kind is Kind.CODE
    succeeded = not is_code and any(answer.failure is None for answer in answers.values())
    is_said = is_code or _is_direct(moment, speaker, message, answers)
    event = Event.GIVEN if is_said else Event.RETURNED
    position = paused(moment.conversation, moment.position, event, succeeded=succeeded)
    return await moment.step(position, _lines(moment, speaker, answers, final=not is_code))


def _is_direct(moment: Moment, speaker: Speaker, message: AIMessage, answers: Answers) -> bool:
    """Whether what the tools gave is the speaker's message (Yacana, LangChain's return_direct)."""
    if any(answer.failure for answer in answers.values()):
        return False
    tools = (moment.resources.registry.tool(call["name"]) for call in message.tool_calls)
    return speaker.return_direct or all(tool is not None and tool.return_direct for tool in tools)


def _lines(moment: Moment, speaker: Speaker, answers: Answers, *, final: bool) -> list[AnyMessage]:
    return [
        result(
            len(moment.log) + place,
            answer.text,
            speaker=speaker.name,
            call_id=call_id,
            failure=answer.failure,
            arguments=answer.arguments,
            parsed=answer.parsed,
            final=final,
        )
        for place, (call_id, answer) in enumerate(answers.items())
    ]
