"""The steps of one run: from the session's current position to its end or to a question.

If a person's message follows the end, the session continues with it. Everything around the steps,
from the lease to the outcome, is in `graphs.session.run`.
"""

import inspect
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

from langchain_core.runnables import RunnableConfig
from langgraph.types import Command

from ...nodes.turn.node_context import Resources
from ...nodes.turn.running_sessions import Part, StepProgress, StepStream
from ...tools.sandbox import sandbox
from ..build import Graph, compile_graph
from ..common.content import Content
from ..common.content_input import load_content
from ..common.errors import AnswerError, SessionError, SpecError, StoreError, function_error
from ..common.threads import in_caller
from ..conversation.conversation import Conversation, has_hand_off_tool
from ..conversation.questions import (
    ApprovalQuestion,
    MessageQuestion,
    Question,
    ToolQuestion,
    check_message,
    is_exit,
)
from ..events import ConversationEnded, Event, Notice, QuestionAsked
from ..log.messages import storable
from ..log.state import new_messages
from ..rules.outcome import Outcome
from ..rules.position import max_steps
from ..rules.questions import check_decisions, read_answer
from ..store.open import SessionLease
from ..store.serializer import check_storable
from .checkpoints import (
    FinishedSteps,
    check_state,
    checkpointer_of,
    config_of,
    pack_steps,
    read_finished_steps,
    reading_session,
    recorded_steps,
    write_state,
)
from .edits import say_in
from .events import TokenStream, events_of
from .options import Options
from .questions import BoundAnswer, answered_question, has_no_interrupt, read_questions
from .session_row import read_session
from .stored_session import StoredSession, make_session

_TRIES = 5
"""Maximum number of invalid answers to one question. Then the session is left waiting."""


_LIKE_AN_ID = re.compile(r"[0-9a-f]{32}")
"""The format that LangGraph recognizes as the id of a question."""


@dataclass
class Steps:
    """The graph of one session, run step by step."""

    graph: Graph
    session: str
    conversation: Conversation
    options: Options
    progress: StepProgress
    reply: BoundAnswer | None
    message: Content | None
    """The option `message`. None if it was not passed, or the person has already said it."""
    is_new: bool
    """Whether nothing of the session is stored yet, so that there is nothing to read."""
    has_ended: bool = False
    """Whether the newest run of the graph has ended the session."""
    _interrupted: bool = False

    async def run(self) -> AsyncGenerator[Event, None]:
        """Run the session from its current position, and yield its events."""
        asked = [] if self.is_new else await self._first_questions()
        reply = None if self.reply is None else self._match_question(asked, self.reply)
        # If the graph ran without an answer, LangGraph would pass a waiting tool or agent the
        # answer to another question of the same step.
        runs = reply is not None or not any(map(_is_foreign, asked))
        at_hand, tries, problem, skipped = reply is not None, 0, "", set[str]()
        while True:
            try:
                if runs:
                    async with aclosing(
                        self._run_to_question(await self._graph_input(reply))
                    ) as events:
                        async for event in events:
                            yield event
                    tries, problem = 0, ""
                    # Most runs end without a question. Read the questions only after an interrupt.
                    asked = await self.read_questions() if self._interrupted else []
            except AnswerError as error:
                tries, problem = tries + 1, str(error)
                if at_hand or tries >= _TRIES:
                    raise
                asked = await self.read_questions()
            at_hand = False
            left = [one for one in asked if one.id not in skipped]
            if not left:
                return
            # One at a time: the next question may depend on this answer.
            question = next((one for one in left if reply and one.id == reply[0].id), left[0])
            is_same = reply is None or question.id == reply[0].id
            if problem and is_same:
                question = question.model_copy(update={"problem": problem})
            yield QuestionAsked(question=question)
            value = await self._value(question)
            runs = value is not None
            if runs:
                reply = (question, value)
            else:
                skipped.add(question.id)

    async def _first_questions(self) -> list[Question]:
        """Return the questions that the session waits for. An interrupt asks each of them now."""
        asked = await self.read_questions()
        if not has_no_interrupt(asked):
            return asked
        if self.reply is not None:
            self._match_question(asked, self.reply)
        await write_state(self.graph, self.session, {})
        async with aclosing(self._stream_graph(None)) as events:
            # The run stops before the person's turn, so there are no events.
            async for _ in events:
                pass
        asked = await self.read_questions()
        if self.reply is not None:
            self.reply = self.reply._replace(question=asked[0].id)
        return asked

    def _match_question(
        self, asked: Sequence[Question], answer: BoundAnswer
    ) -> tuple[Question, Any]:
        """Return the waiting question that an answer belongs to, and the answer's value."""
        return answered_question(self.session, asked, answer), answer.value

    async def read_questions(self) -> list[Question]:
        """Return the questions that the session waits for."""
        return await read_questions(self.graph, self.session)

    async def _run_to_question(self, given: Any) -> AsyncGenerator[Event, None]:  # noqa: ANN401
        """Run the graph to its end or its next question."""
        async with aclosing(self._stream_graph(given)) as events:
            async for event in events:
                yield event
        if self._interrupted or self.has_ended:
            return
        # If a run was cancelled after a node and before its edge, LangGraph considers the node
        # finished: no node follows, though the session has not ended and no question waits.
        state = await self.graph.aget_state(config_of(self.session))
        if not state.values.get("outcome") and not state.interrupts:
            await write_state(self.graph, self.session, {})
            async with aclosing(self._stream_graph(None)) as events:
                async for event in events:
                    yield event

    async def _graph_input(self, reply: tuple[Question, Any] | None) -> Any:  # noqa: ANN401
        """Return the graph's input: the conversation, an answer, or None to resume."""
        if reply is None:
            saver, thread = checkpointer_of(self.graph), config_of(self.session)
            if self.is_new or await saver.aget_tuple(thread) is None:
                self.is_new = False
                return {"conversation": self.conversation.stored()}
            return None
        question, value = reply
        value = _check_answer_storable(value)
        if isinstance(question, MessageQuestion):
            if not isinstance(value, str | int | float):
                try:
                    value = await load_content(value, "message")
                except SpecError as error:
                    raise AnswerError(
                        f"the answer does not fit, and the question stays open: {error}"
                    ) from error
            # LangGraph stores the answer before any node checks it.
            check_message(question, value)
        if isinstance(question, ApprovalQuestion):
            value = read_answer(value)
            if _is_foreign(question):
                # An agent would fail on an invalid answer, again at every resume.
                check_decisions(question, value)
        is_map = isinstance(value, dict) and all(map(_LIKE_AN_ID.fullmatch, map(str, value)))
        # Without an id, LangGraph stores the answer before it runs anything. But it may then pass
        # the answer to other questions of the same step as well, and would read a map as answers by
        # id.
        by_id = is_map or _is_foreign(question)
        return Command(resume={question.id: value} if by_id else value)

    async def _stream_graph(self, given: Any) -> AsyncGenerator[Event, None]:  # noqa: ANN401
        """Stream the graph to its end or its next interrupt."""
        config: RunnableConfig = {
            "configurable": {"thread_id": self.session},
            "recursion_limit": max_steps(self.conversation),
            "callbacks": list(self.options.get("callbacks") or ()),
        }
        stream = self.graph.astream(
            given,
            config,
            # Not "messages": its handler costs more than half a step. The nodes send tokens
            # themselves.
            stream_mode=["updates", "custom"],
            context=self.options.get("context"),
            durability=self.options.get("durability") or "sync",
        )
        reading = StepStream(cast("AsyncGenerator[Part, None]", stream), self.progress)
        # The stream is closed here. Otherwise, if a reader stops early, it would run on after the
        # store is closed.
        async with aclosing(reading.read()) as parts:
            # The speakers who may say something together with tool calls.
            speakers = {
                one.name
                for one in self.conversation.speakers
                if one.speaks_with_tool_calls or has_hand_off_tool(self.conversation, one)
            }
            streamed = TokenStream(speakers)
            self._interrupted = self.has_ended = False
            async for mode, found in parts:
                if mode == "updates":
                    self._interrupted |= "__interrupt__" in found
                    self.has_ended |= any("outcome" in (update or ()) for update in found.values())
                for event in self._events(mode, found, streamed):
                    yield event

    def _events(self, mode: str, found: Any, streamed: TokenStream) -> Iterator[Event]:  # noqa: ANN401
        """Turn LangGraph's stream into events."""
        if mode == "custom" and "notice" in found:
            yield Notice(text=found["notice"])
        elif mode == "custom" and "speech" in found:
            yield from streamed.add_text_beside_calls(**found["speech"])
        elif mode == "custom" and "token" in found:
            yield from streamed.add_content(**found["token"])
        elif mode == "custom" and "thought" in found:
            yield from streamed.add_thought(**found["thought"])
        elif mode == "updates" and "__interrupt__" not in found:
            for update in found.values():
                for event in events_of(self.conversation, new_messages(update or {})):
                    yield from streamed.complete(event)

    async def _value(self, question: Question) -> Any:  # noqa: ANN401
        """Return the message or the answer for a question. None if there is no answer now."""
        if self.message is not None and isinstance(question, MessageQuestion):
            value, self.message = self.message, None
            return value
        value = await self._call_answer(question)
        if value is not None:
            # The answer may take days. Meanwhile this run may have lost its lease.
            self._match_question(
                await self.read_questions(), BoundAnswer(value, question.id, waited=True)
            )
        return value

    async def _call_answer(self, question: Question) -> Any:  # noqa: ANN401
        """Ask the option `answer` a question, and return the answer. None if there is no answer."""
        answer = self.options.get("answer")
        if answer is None:
            return None
        try:
            if inspect.iscoroutinefunction(answer):
                return await answer(question)
            # The function may wait for a person, which must not block other conversations.
            found = await in_caller(answer, question)
            return await found if inspect.isawaitable(found) else found
        except EOFError:
            # No one can answer any more, as at the end of a terminal's input.
            return None
        except Exception as error:
            # Ctrl-C is not an `Exception`. It is meant for the caller of the run, not for `answer`.
            raise function_error("function", "answer", error) from error


def _is_foreign(question: Question) -> bool:
    """Return whether a tool or a user's own agent asks, so that no schema defines valid answers."""
    return isinstance(question, ToolQuestion) or not question.response_schema


def _check_answer_storable(value: Any) -> Any:  # noqa: ANN401
    """Return an answer that can be stored, and raise `AnswerError` if it cannot."""
    if value is None:
        raise AnswerError(
            "the answer does not fit, and the question stays open: the answer is None"
        )
    try:
        check_storable(value)
    except Exception as error:
        if isinstance(value, str):
            # A lone surrogate has no encoding.
            return storable(value)
        raise AnswerError(
            f"the answer can't be stored, and the question stays open: {error}"
        ) from error
    return value


class Begun(NamedTuple):
    """The state in which a run begins."""

    resources: Resources
    conversation: Conversation
    ended: StoredSession | None  # the finished session, or None
    person: str  # the person who says the option `message`, or an empty text
    waits: bool  # whether the session waits for a person
    is_new: bool  # whether only the session's row is stored


async def play(
    held: SessionLease, begun: Begun, reply: BoundAnswer | None, options: Options
) -> AsyncGenerator[Event | StoredSession, None]:
    """Run a session to its end or a question, or continue it with the option `message`."""
    resources, conversation, result, person, waits, is_new = begun
    progress = StepProgress()
    # `run_session` has checked the conversation, and that the session belongs to it.
    running_in = replace(resources, progress=progress)
    graph = compile_graph(
        running_in,
        held.checkpointer,
        runtime_store=options.get("runtime_store"),
        checks_inputs=False,
    )
    runs_code = bool(resources.registry.languages_of(conversation))
    # `run_session` has read its files.
    message = cast("Content | None", options.get("message"))
    deletes = not options.get("keep_checkpoints")
    finished: FinishedSteps | None = None
    while result is None or (result.outcome is not None and says_more(message)):
        if result is not None and message is not None:
            known = {one.id for one in result.messages}
            result, message = await say_in(held, conversation, person, message), None
            finished = None
            new = [one for one in result.messages if one.id not in known]
            for event in events_of(conversation, new):
                yield event
            if result.outcome is not None:
                break
        steps = Steps(graph, held.session, conversation, options, progress, reply, message, is_new)
        async with aclosing(_run_with_status(held, steps, waits=waits)) as events:
            async for event in events:
                yield event
        message, reply, waits, is_new = steps.message, None, False, False
        finished = None
        if steps.has_ended:
            finished = await _find_finished(held, conversation, graph, deletes=deletes)
        result = await _read_result(held, conversation, graph, finished, runs_code=runs_code)
        if result.outcome is not None and says_more(message):
            await held.finish(result.outcome.reason.value)
    if result.outcome is None and message is not None:
        # A result would look as if the message had been said.
        raise SessionError(
            f"Session {held.session!r} waits for another answer, so the message was not added; "
            "answer the waiting question first with Session.answer(…), say the message in place of "
            "an answer with Session.add_message(…), or stop the session."
        )
    if result.outcome is not None:
        await _end(held, conversation, graph, finished, result.outcome, deletes=deletes)
        yield ConversationEnded.of(held.session, result.outcome)
    yield result


def says_more(message: object) -> bool:
    """Return whether a message continues a session that has ended. `exit` does not."""
    return message is not None and not is_exit(message)


async def _run_with_status(
    held: SessionLease, steps: Steps, *, waits: bool
) -> AsyncGenerator[Event, None]:
    """Run a session, and record in the sessions table whether it waits for a person."""

    async def note(now: bool) -> None:
        nonlocal waits
        if now is not waits:
            await (held.wait() if now else held.reopen())
            waits = now

    try:
        async with aclosing(steps.run()) as events:
            async for event in events:
                await note(isinstance(event, QuestionAsked))
                yield event
    except Exception:
        # The run may have failed after the question was answered.
        await note(bool(await steps.read_questions()))
        raise


async def _end(
    held: SessionLease,
    conversation: Conversation,
    graph: Graph,
    finished: FinishedSteps | None,
    outcome: Outcome,
    *,
    deletes: bool,
) -> None:
    """Record the end of a session, and delete its older checkpoints unless all are wanted."""
    whole = None
    if deletes:
        whole = pack_steps(
            finished or await _find_finished(held, conversation, graph, deletes=True)
        )
    try:
        await held.end(outcome.reason.value, whole)
    except StoreError as error:
        if whole is None:
            raise
        try:
            # Without the deletion, only the session's size is larger.
            await held.end(outcome.reason.value)
        except SessionError:
            # The lease is released: the first try was committed, and failed afterwards.
            raise error from None


async def _find_finished(
    held: SessionLease, conversation: Conversation, graph: Graph, *, deletes: bool
) -> FinishedSteps | None:
    """Return the steps of a session that has ended. They are read if the deletion needs them."""
    found = recorded_steps(graph, held)
    if found is None and deletes:
        found = await read_finished_steps(graph, held.session)
        if found is not None:
            with reading_session(graph, held.session):
                check_state(held.session, conversation, found.states[-1])
    return found


async def _read_result(
    held: SessionLease,
    conversation: Conversation,
    graph: Graph,
    steps: FinishedSteps | None,
    *,
    runs_code: bool,
) -> StoredSession:
    """Return a session after its run, and close its interpreter if it has ended."""
    session = held.session
    if steps is None:
        result = await read_session(session, conversation, graph)
    else:
        result = make_session(session, conversation, cast("Mapping[str, Any]", steps.states[-1]))
    if result.outcome is not None and runs_code:
        # Close the interpreter, and delete its files.
        if steps is None:
            state = (await graph.aget_state(config_of(session))).values
        else:
            state = cast("dict[str, Any]", steps.states[-1])
        if state.get("interpreter"):
            await sandbox.close(state["interpreter"]["key"])
    return result
