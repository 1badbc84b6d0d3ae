"""Execution of the calls of one message: tools concurrently, code in sequence; then their results.

Each call is a LangGraph task whose result is recorded, so that a finished call is not repeated
after a crash. A call in flight runs again under the same call id. Results are recorded for the
speaker alone or for all. Handoffs that a speaker calls together with tools take effect after the
tools succeed.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, get_args

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.messages.tool import ToolCall
from langchain_core.tools import BaseTool
from langgraph.errors import GraphInterrupt

from ...graphs.common.errors import AnswerError, SpecError
from ...graphs.conversation.conversation import hand_off_targets
from ...graphs.conversation.judges import HAND_OFF
from ...graphs.conversation.sandbox import Kept, Language, Sandbox, new_key
from ...graphs.conversation.usage import read_usage
from ...graphs.log.heard_text import describe_handoffs
from ...graphs.log.memory import talk_of
from ...graphs.log.messages import make_tool_message, metadata, storable
from ...graphs.log.metadata import (
    NOBODY,
    CodeCalls,
    Failure,
    InnerSession,
    Source,
    Speech,
    ToolResult,
    UnheardResult,
)
from ...graphs.prompts.prompts import HAND_OFF_UNDONE, NOT_RUN
from ...graphs.rules.position import Phase
from ...graphs.rules.questions import call_shown
from ...graphs.rules.transitions import record_pause, record_turn
from ...graphs.speakers.call_settings import AnyDecision, DecisionType, Edit, Reject, Respond
from ...tools.registry.hooks import RunCode, ToolState, languages_of, timeout_of
from ...tools.registry.registry import ConversationTool
from ...tools.sandbox import sandbox as sandboxes
from ...tools.sandbox.sandbox import Ran
from ..models.tool_binding import read_hand_over_calls
from ..turn.hooks import run_after_tool, run_before_tool, turn_of
from ..turn.interrupt import Interruption
from ..turn.log_writer import exit_code_of, returns_directly
from ..turn.node_context import NodeContext, session_id
from ..turn.running_sessions import record_as_task
from .call import OUTCOME, CallResult, call_conversation, read_new_result, read_result, run_call

Answers = Mapping[str, CallResult]
"""The result of each call by its id, in the order of the calls."""


class Interpreter:
    """A session's interpreter within one step. Its runs are sequential."""

    def __init__(self, sandbox: Sandbox, kept: Mapping[str, Any] | None) -> None:
        self._sandbox = sandbox
        # A session of the same name in another store must not find these variables.
        self._kept = Kept.model_validate(kept) if kept else Kept(key=new_key())

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Continue from the state recorded after a run. Does nothing if it is empty."""
        if kept:
            self._kept = Kept.model_validate(kept)

    def dump(self) -> dict[str, Any]:
        """Return the state to record, as plain values. Empty if the interpreter has never run."""
        return self._kept.under(self._kept.key) if self._kept.started else {}

    async def run(self, language: Language, code: str) -> sandboxes.Ran:
        """Run code."""
        ran = await sandboxes.run(self._sandbox, language, code, self._kept)
        self._kept = ran.kept
        return ran

    async def run_block(self, language: str, code: str) -> CallResult:
        """Run a fenced block of a message, or return why it can't run (AutoGen)."""
        if language not in get_args(Language):
            what = f"unknown language {language!r}" if language else "unlabelled code"
            text = (
                f"{what}: only python and shell can run; write one of them after the opening fence"
            )
            return CallResult(text, parsed={"exit_code": 1, "language": language})
        try:
            ran = await self.run("python" if language == "python" else "shell", code)
        except SpecError as error:
            return CallResult(str(error), parsed={"exit_code": 1, "language": language})
        return CallResult(ran.output, parsed={"exit_code": ran.exit_code, "language": language})


_SLACK = 30.0
"""Seconds that a call that runs code may take in addition to the sandbox's limit."""


call_tool = record_as_task("call_tool")
"""Runs one call as a task."""

see_calls = record_as_task("see_calls")
"""Runs, as a task, the hooks that come before the calls."""


class _Call(NamedTuple):
    """A call that runs, after changes by a person and by hooks."""

    made: ToolCall
    """The call as the speaker made it."""
    call: ToolCall
    decision: DecisionType | None
    """Decision of a person about the call. None if no person was asked."""
    instead: CallResult | None = None
    """Result from a hook that replaces the tool's. None if the tool runs."""

    @property
    def id(self) -> str:
        """The id of the call and its result."""
        return str(self.call["id"])

    def describe_run(self, answer: CallResult) -> CallResult:
        """Return a result with the tool and arguments that ran, if they differ from the call."""
        name, arguments = self.call["name"], self.call["args"]
        changed = self.decision == "edit" or arguments != self.made["args"]
        return answer._replace(
            arguments=arguments if changed else None,
            tool=None if name == self.made["name"] else name,
            decision=self.decision,
        )


def _apply_decision(made: ToolCall, decision: AnyDecision | None) -> "_Call | CallResult":
    """Return the call to run, or the result if a person rejected or answered it."""
    match decision:
        case Reject():
            why = storable((decision.message or "").strip())
            told = (
                f"A person rejected the call of {made['name']}, so it did not run. "
                f"{f'Reason: {why}' if why else 'No reason was given.'}"
            )
            return CallResult(told, Failure.PERSON, decision="reject", refusal=why or None)
        case Respond():
            return CallResult(decision.message, decision="respond")
        case Edit(edited_action=action):
            call = ToolCall(name=action.name, args=action.args, id=made["id"], type="tool_call")
            # An edit that changes nothing counts as an approval.
            is_same = (call["name"], call["args"]) == (made["name"], made["args"])
            return _Call(made, call, "approve" if is_same else "edit")
        case _:
            return _Call(made, made, None if decision is None else "approve")


@dataclass(frozen=True)
class CallsRun:
    """The calls of a message, their execution and their results."""

    context: NodeContext
    message: AIMessage
    interpreter: Interpreter

    @cached_property
    def is_code(self) -> bool:
        """True if the calls are the code of a message."""
        return isinstance(metadata(self.message), CodeCalls)

    @cached_property
    def handoffs(self) -> dict[str, CallResult]:
        """The result of each handoff by its id, as if the other calls succeeded.

        It is empty if the speaker may not hand over.
        """
        given = read_hand_over_calls(self.message).to
        results = describe_handoffs(self.context.conversation, self.context.turn.speaker, given)
        failure = None if any(name for name, _ in results) else Failure.CALL
        ids = (str(call["id"]) for call in self.message.tool_calls if call["name"] == HAND_OFF)
        found = zip(ids, results, strict=False)
        return {call_id: CallResult(text, failure) for call_id, (_, text) in found}

    async def run_result_hooks(self) -> Answers:
        """Run the hooks after the tools, and return the final result of each call."""
        log, turn = self.context.log, turn_of(self.context)
        calls: Mapping[str | None, ToolCall] = {one["id"]: one for one in self.message.tool_calls}
        answers: dict[str, CallResult] = {}
        for found in log[log.index(self.message) + 1 :]:
            if not isinstance(found, ToolMessage):
                # A message that somebody sent meanwhile.
                continue
            answer, call = read_result(found), calls.get(found.tool_call_id)
            is_tool = found.tool_call_id not in self.handoffs
            if call is not None and is_tool and answer.failure is not Failure.PERSON:
                run = ToolCall(
                    name=answer.tool or call["name"],
                    args=call["args"] if answer.arguments is None else answer.arguments,
                    id=call["id"],
                    type="tool_call",
                )
                seen = ToolMessage(
                    found.content,
                    tool_call_id=found.tool_call_id,
                    name=run["name"],
                    status=found.status,
                    artifact=found.artifact,
                )
                after = await run_after_tool(self.context.hooks, turn, run, seen)
                made = read_new_result(after, run["name"])
                answer = answer._replace(
                    text=made.text,
                    files=made.files,
                    failure=made.failure and (answer.failure or made.failure),
                    artifact=made.artifact,
                    # A hook that adds no artifact does not change why there is none.
                    artifact_problem=made.artifact_problem
                    or (answer.artifact_problem if made.artifact is None else None),
                )
            # Otherwise no tool was called: a person refused it, or its arguments were invalid.
            answers[found.tool_call_id] = answer
        return answers

    async def return_results(self, answers: Answers) -> dict[str, Any]:
        """Record the results of the calls, for the speaker to use or as the speaker's message."""
        context, is_code = self.context, self.is_code
        others = {call_id: one for call_id, one in answers.items() if call_id not in self.handoffs}
        undone = self._undo_handoffs(others)
        # A person's refusal is not an error, so the calls count as a round here. Otherwise a turn
        # could continue forever.
        counts = (None, Failure.PERSON)
        succeeded = not is_code and any(answer.failure in counts for answer in others.values())
        is_direct = not (is_code or self.handoffs) and self._is_direct(answers)
        is_said = is_code or is_direct or (bool(self.handoffs) and not undone)
        told = {**answers, **undone}
        phase = Phase.GIVEN if is_said else Phase.RETURNED
        position = record_pause(context.position, context.turn, phase, succeeded=succeeded)
        # A result that becomes the message gets no note about a person's changes.
        for call in () if is_said else self.message.tool_calls:
            answer = told[str(call["id"])]
            if answer.decision == "edit":
                ran = call_shown(answer.tool or call["name"], answer.arguments or {})
                text = f"A person changed this call to {ran} before it ran. Result:\n{answer.text}"
                told[str(call["id"])] = answer._replace(text=text)
        tool_round = position.tool_rounds if succeeded and not is_said else None
        self.add_results(told, final=not is_code, tool_round=tool_round)
        return await context.step(position)

    def _undo_handoffs(self, others: Answers) -> Answers:
        """Return the results of handoffs that do not take effect. Empty if they do.

        They take effect if all other calls ran as the speaker made them, and succeeded.
        """
        by_speaker = (None, "approve")
        worked = all(not one.failure and one.decision in by_speaker for one in others.values())
        if worked and not any(one.failure for one in self.handoffs.values()):
            return {}
        undone = CallResult(self.context.conversation.render_prompt(HAND_OFF_UNDONE))
        return {name: one if one.failure else undone for name, one in self.handoffs.items()}

    def _is_direct(self, answers: Answers) -> bool:
        """Return whether results become the speaker's message (Yacana and LangChain)."""
        by_person = ("reject", "respond")
        if any(answer.failure or answer.decision in by_person for answer in answers.values()):
            return False
        ran = [answers[str(one["id"])].tool or one["name"] for one in self.message.tool_calls]
        return returns_directly(self.context, ran)

    async def interrupt(self, person: Interruption) -> dict[str, Any]:
        """Record that each call was interrupted, and then the person's message."""
        context = self.context
        about = Speech(
            speaker=person.speaker,
            audience=context.conversation.speaker(person.speaker).speaks_to,
            stage=context.turn.stage,
            source=Source.HUMAN,
            interrupts=True,
        )
        # The interruption counts as a round. Otherwise a turn could continue forever.
        position = record_pause(context.position, context.turn, Phase.RETURNED, succeeded=True)
        answers = self._refuse_all(f"Not run: {person.speaker} sent a message instead.")
        self.add_results(answers, tool_round=position.tool_rounds)
        waiting = context.find_waiting_message(person.speaker)
        context.add(person.content, about, id=None if waiting is None else waiting.id)
        return await context.step(position)

    async def return_turn(self) -> dict[str, Any]:
        """End the turn without running its calls when a guard passes the turn to a person."""
        self.add_results(self._refuse_all(NOT_RUN))
        return await self.context.step(record_turn(self.context, self.context.turn))

    def _refuse_all(self, text: str) -> Answers:
        """Return the results of the calls if a person did not let them run."""
        calls = (*self.message.tool_calls, *self.message.invalid_tool_calls)
        return {str(call["id"]): CallResult(text, Failure.PERSON) for call in calls}

    def add_results(
        self, answers: Answers, *, final: bool = True, tool_round: int | None = None
    ) -> None:
        """Add results and their inner sessions to the log.

        If `final` is True, the speaker who called the tools hears them. Otherwise hooks see them
        first, or the speaker reports them in a message.
        """
        context, name = self.context, self.context.turn.speaker
        for answer in answers.values():
            if answer.inner is not None:
                context.add_usage(read_usage(answer.inner))
                context.add("", InnerSession.model_validate(answer.inner))
        kind, audience = (ToolResult, (name,)) if final else (UnheardResult, NOBODY)
        last = [*answers][-1:]
        # The results follow without a gap, because the next step reads the newest messages.
        for call_id, answer in answers.items():
            about = kind(
                speaker=name,
                audience=audience,
                tool_round=tool_round if call_id in last else None,
                **{field: getattr(answer, field) for field in OUTCOME},
            )
            kept: Any = {"files": answer.files, "artifact": answer.artifact}
            place = context.next_place()
            context.new.append(make_tool_message(place, answer.text, about, call_id, **kept))

    async def run_all(self, decisions: Mapping[str, AnyDecision]) -> Answers:
        """Run the calls after their hooks, and return the result of each."""
        found = {**self.handoffs}
        asked: list[_Call] = []
        ids = [str(made["id"]) for made in self.message.tool_calls]
        for call_id, made in zip(ids, self.message.tool_calls, strict=True):
            if call_id in found:
                continue
            decided = _apply_decision(made, decisions.get(call_id))
            if isinstance(decided, CallResult):
                found[call_id] = decided
            else:
                asked.append(decided)
        found |= await self._run_calls(await self._run_hooks(asked))
        answers = {call_id: found[call_id] for call_id in ids if call_id in found}
        for broken in self.message.invalid_tool_calls:
            text = broken["error"] or f"The call of {broken['name']} cannot be read."
            answers[str(broken["id"])] = CallResult(text, Failure.CALL)
        return answers

    async def _run_calls(self, calls: Sequence[_Call]) -> dict[str, CallResult]:
        """Run calls, and return the result of each by its id."""
        find = self.context.resources.registry.tool
        chained = [
            one
            for one in calls
            if self.is_code or ((tool := find(one.call["name"])) and languages_of(tool))
        ]
        # LangGraph identifies a task by its index, so the order of the tasks is fixed: these begin
        # now, the others in sequence.
        begun = {one.id: self._begin(one, runs_code=False) for one in calls if one not in chained}
        found: dict[str, CallResult] = {}
        held_up: list[BaseException] = []
        for one in chained:
            try:
                record = await self._begin(one, runs_code=True)
            except (GraphInterrupt, AnswerError) as error:
                # The calls after this one wait too, since they would find the interpreter in
                # another state.
                held_up.append(error)
                break
            self.interpreter.restore(record["kept"])
            found[one.id] = answer = CallResult.read(record["answer"])
            if self.is_code and exit_code_of(answer.parsed, failed=answer.failure is not None):
                # The first failing block is the last one to run (AutoGen).
                break
        records = await asyncio.gather(*begun.values(), return_exceptions=True)
        for call_id, came in zip(begun, records, strict=True):
            if isinstance(came, BaseException):
                held_up.append(came)
            else:
                found[call_id] = CallResult.read(came["answer"])
        for held in held_up:
            if not isinstance(held, GraphInterrupt):
                raise held
        if held_up:
            # The questions of several calls are asked together, so that all can be answered.
            raise GraphInterrupt(tuple(one for held in held_up for one in held.args[0]))
        return found

    async def _run_hooks(self, asked: Sequence[_Call]) -> Sequence[_Call]:
        """Run the hooks before all calls, so that a failing hook does not lose a tool's result."""
        if not any(hook.before_tool for _, hook in self.context.hooks):
            return asked
        turn = turn_of(self.context)

        async def record() -> dict[str, Any]:
            made = []
            for one in asked:
                call, instead = await run_before_tool(self.context.hooks, turn, one.call)
                if self.is_code and not isinstance(call["args"].get("code"), str):
                    raise SpecError(
                        f"a before_tool hook of {turn.speaker!r} set the argument `code` to a "
                        "value that is not text; return a string"
                    )
                answer = instead and read_new_result(instead, call["name"]).dump()
                made.append({"args": call["args"], "instead": answer})
            return {"calls": made}

        # Recorded like calls, so that the call in a tool's question is the call that runs.
        return [
            one._replace(
                call=ToolCall(**{**one.call, "args": made["args"]}),
                instead=None if made["instead"] is None else CallResult.read(made["instead"]),
            )
            for one, made in zip(asked, (await see_calls(record))["calls"], strict=True)
        ]

    def _begin(self, one: _Call, *, runs_code: bool) -> Awaitable[dict[str, Any]]:
        async def record() -> dict[str, Any]:
            answer = one.instead
            if answer is None and self.is_code:
                name, code = one.call["name"], one.call["args"]["code"]
                answer = await self.interpreter.run_block(name, code)
            elif answer is None:
                answer = await self._run_tool(one.call)
            found = {"answer": one.describe_run(answer).dump()}
            # After a crash, the next call finds the variables of this one.
            return found | ({"kept": self.interpreter.dump()} if runs_code else {})

        return call_tool(record)

    async def _run_tool(self, call: ToolCall) -> CallResult:
        registry, conversation = self.context.resources.registry, self.context.conversation
        speaker = self.context.speaker
        allowed = speaker.tools if speaker.tool_choice != "none" else ()
        tool = registry.tool(call["name"]) if call["name"] in allowed else None
        if tool is None:
            hands_over = [HAND_OFF] if hand_off_targets(conversation, speaker.name) else []
            names = ", ".join([*allowed, *hands_over])
            there_are = f"Your tools: {names}" if names else "You have no tools"
            # As in Lagent and Agere, the model reads the error.
            return CallResult(f"There is no tool {call['name']!r}. {there_are}.", Failure.CALL)
        if isinstance(tool, ConversationTool):
            return await call_conversation(self.context, call, tool)
        seconds = timeout_of(tool)
        if seconds is None:
            # The sandbox ends a call that runs code, and reports it.
            runs_code = bool(languages_of(tool))
            seconds = (
                conversation.sandbox.seconds + _SLACK if runs_code else conversation.tool_timeout
            )
        # Only information that the caller has.
        state = ToolState(
            session=session_id(),
            speaker=speaker.name,
            messages=talk_of(self.context.heard_lines(), speaker.name),
            run_code=self._run_code_for(tool),
        )
        return await run_call(call, tool, state, seconds)

    def _run_code_for(self, tool: BaseTool) -> RunCode:
        may = languages_of(tool)

        async def run_code(language: Language, code: str) -> Ran:
            if language not in may:
                raise SpecError(
                    f"the tool {tool.name!r} is not allowed to run {language}; give it "
                    f'metadata={{"sandbox": ["{language}"]}}'
                )
            return await self.interpreter.run(language, code)

        return run_code
