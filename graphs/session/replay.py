"""Replaying a recorded session: running the same conversation with the recorded answers.

No model, no custom agent and no person is asked. Tools, functions, hooks and code run
again. If they behave as before, the messages are the same.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final, cast

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, BaseRunManager
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import PrivateAttr

from ...nodes.models.model import Models
from ...nodes.testing import Call, Prompt, Reply, ScriptedChatModel, ScriptExhaustedError
from ...nodes.turn.next_message import say_as_speaker
from ...nodes.turn.node_context import Resources
from ...tools.registry.registry import Registered, Registry
from ...tools.sandbox import sandbox
from ..build import Graph, compile_graph
from ..common.content import with_digests
from ..common.errors import AnswerError, DuologueError, SessionError
from ..conversation.conversation import Conversation
from ..conversation.questions import ApprovalQuestion, MessageQuestion, Question
from ..ends.all_ends import Reason
from ..log.messages import metadata, place_of
from ..log.metadata import (
    Draft,
    EarlierEnd,
    InnerSession,
    Instruction,
    JudgeQuestion,
    SpecifiedTask,
    original_metadata,
    outcome_of,
)
from ..log.state import State, log_of, new_messages
from ..rules.moves import max_steps
from ..rules.position import Position
from ..rules.transitions import Node
from .checkpoints import config_of, settle, write_state
from .dumped_message import dumped
from .options import RuntimeOptions
from .recorded_answers import (
    answers,
    decisions_given,
    inner_conversations_in,
    message_given,
    replies_of_agents,
    up_to_each_end,
)
from .session_row import read_session
from .stored_session import StoredSession


def compare(
    recorded: StoredSession, messages: Sequence[BaseMessage], same: int, misfit: str
) -> None:
    """Raise unless the messages so far are the same, and a person's recorded answer still fits."""
    where = f"Session {recorded.session_id!r} differs from its record at message"
    said = zip(recorded.messages[same:], messages[same:], strict=False)
    for before, now in said:
        one, other = _compared_values(before), _compared_values(now)
        different = next((field for field in one if one[field] != other[field]), None)
        if different is not None:
            raise SessionError(
                f"{where} {place_of(before)}: "
                f"its {different} is {other[different]!r} instead of {one[different]!r}."
            )
    if len(messages) > len(recorded.messages):
        raise SessionError(
            f"Session {recorded.session_id!r} continues after the record's end with message "
            f"{place_of(messages[len(recorded.messages)])}."
        )
    if misfit:
        raise SessionError(f"{where} {place_of(recorded.messages[len(messages)])}: {misfit}.")


def compare_ends(recorded: StoredSession, again: StoredSession) -> None:
    """Raise if the replay ended before the end of the record."""
    if len(again.messages) < len(recorded.messages):
        raise SessionError(
            f"Session {recorded.session_id!r} ends before the record's end: message "
            f"{place_of(recorded.messages[len(again.messages)])} is missing."
        )


_OF_INNER: Final = {"log", "usage", "outcome", "summary"}
"""Values of an inner session that may differ in a replay. Its output is compared."""

_NOT_COMPARED: Final = {"message_id", "usage", "model", "artifact", "packed_artifact"}
"""Values of a message that may differ in a replay. Artifacts are not part of what is said."""


def _compared_values(message: BaseMessage) -> dict[str, Any]:
    """Return a message's values to compare, without unique ids, usage and duologue's own texts."""
    # A recorded model uses no tokens.
    says = dumped(message).model_dump(mode="json", exclude=_NOT_COMPARED)
    # Digests instead of bytes, because people read the difference.
    says["blocks"] = with_digests(says["blocks"])
    text, about = says.pop("text"), says.pop("metadata") | {"problem": None}
    if isinstance(metadata(message), InnerSession):
        # Its messages have new ids, and its usage is 0.
        about = {name: one for name, one in about.items() if name not in _OF_INNER}
    # A newer release may word these texts differently.
    ours = isinstance(metadata(message), JudgeQuestion | Instruction)
    if ours or about.get("verdict") is not None:
        text = ""
    return {"id": says.pop("id"), "text": text, **about, **says}


async def replay_session(recorded: StoredSession, options: RuntimeOptions) -> StoredSession:
    """Run a recorded session again from its record, and return the replayed session."""
    given: dict[str, Any] = {**options}
    context, runtime_store = given.pop("context", None), given.pop("runtime_store", None)
    conversation = recorded.conversation
    # If models have prices, the recorded model, which replaces all of them, needs a price as well.
    name = next(iter(conversation.prices), "recorded")
    model = _Recorded([*answers(conversation, recorded.messages)], name)
    spoken = (conversation, *inner_conversations_in(recorded.messages))
    names = (name for one in spoken for name in one.model_names)
    named = {name: model for name in names if name is not None}
    registered = cast("Registered", {**given, "agents": _agents(recorded)})
    models, registry = Models(model, named), Registry(registered)
    resources = Resources(models, registry, allow_host=True, allow_paths=True, serves_clients=False)
    await resources.find(conversation)
    resources.registry.check_runtime_store(conversation, runtime_store)
    graph = compile_graph(resources, InMemorySaver(), runtime_store=runtime_store)
    try:
        return await _run(graph, recorded, context)
    finally:
        await _close_interpreter(graph, recorded.session_id)


class _NoMoreError(DuologueError):
    """The record contains no further reply of an agent."""


def _agents(recorded: StoredSession) -> dict[str, Runnable[Any, Any]]:
    """Return one stand-in for all agents, which repeats their replies in the order of the log."""
    replies = replies_of_agents(recorded.messages)

    def again(_: object) -> dict[str, Any]:
        found = next(replies, None)
        if found is None:
            raise _NoMoreError("the record contains no further reply of an agent")
        return found

    agent = RunnableLambda(again)
    return dict.fromkeys(recorded.conversation.agents, agent)


async def _run(graph: Graph, recorded: StoredSession, context: object) -> StoredSession:
    """Run the session to the record's end, and continue it after each earlier end."""
    native = _replayable_conversation(recorded)
    said: list[AnyMessage] = []
    given: Any = {"conversation": native.stored()}
    for part in up_to_each_end(recorded):
        if said:
            await _continue_after_end(graph, native, recorded, said)
            given = None
        again = await _until_end(graph, given, native, part, said, context)
    compare_ends(recorded, again)
    return replace(again, conversation=recorded.conversation)


async def _continue_after_end(
    graph: Graph, conversation: Conversation, recorded: StoredSession, said: list[AnyMessage]
) -> None:
    """Add the recorded message that continued the session after an end."""
    known, session = len(said), recorded.session_id
    rest = [(metadata(message), message.text) for message in recorded.messages[known:]]
    ends = next(place for place, (about, _) in enumerate(rest) if isinstance(about, EarlierEnd))
    await _close_interpreter(graph, session)
    # The log does not show every reason that ended the session.
    ended: State = {"outcome": outcome_of(rest[ends][0]) or {}}
    state: State = {**await settle(graph, session, conversation), **ended}
    position = Position.model_validate(state["position"])
    about, text = rest[ends + 1]
    # A message that was removed later is reported as a difference, as everywhere in a replay.
    speaker = str(original_metadata(about).speaker)
    new = say_as_speaker(state, conversation, position, speaker, text)
    await write_state(graph, session, new)
    said += log_of(new)
    compare(recorded, said, known, "")


async def _close_interpreter(graph: Graph, session: str) -> None:
    state = (await graph.aget_state(config_of(session))).values
    if state.get("interpreter"):
        await sandbox.close(state["interpreter"]["key"])


async def _until_end(
    graph: Graph,
    given: Any,  # noqa: ANN401
    conversation: Conversation,
    recorded: StoredSession,
    said: list[AnyMessage],
    context: object,
) -> StoredSession:
    """Run the session to its end, the record's end, or the first difference."""
    while True:
        misfit, is_over = "", False
        try:
            is_over = await _run_to_question(graph, given, recorded, said, context)
        except (ScriptExhaustedError, _NoMoreError):
            # The record ends here, or the run has diverged, which the comparison of the messages
            # shows.
            is_over = True
        except AnswerError as error:
            misfit = str(error)
        again = await read_session(recorded.session_id, conversation, graph)
        compare(recorded, again.messages, len(said), misfit)
        if is_over or again.outcome is not None or not again.pending:
            return again
        value = _recorded_answer(again.pending[0], recorded, again)
        if value is None:
            return again
        given = Command(resume={again.pending[0].id: value})


async def _run_to_question(
    graph: Graph,
    given: Any,  # noqa: ANN401
    recorded: StoredSession,
    said: list[AnyMessage],
    context: object,
) -> bool:
    """Run the graph to its end or a question; return whether the record ends here."""
    most_steps = max_steps(recorded.conversation)
    config: RunnableConfig = {**config_of(recorded.session_id), "recursion_limit": most_steps}
    steps = graph.astream(given, config, context=context, stream_mode="updates")
    # LangGraph starts the next step only when it is requested.
    async with aclosing(cast("AsyncGenerator[dict[str, Any], None]", steps)) as updates:
        async for update in updates:
            # Finished tool calls appear in the stream next to the updates of the nodes.
            written = [update[node.value] for node in Node if update.get(node.value)]
            for one in written:
                known = len(said)
                said += new_messages(one)
                compare(recorded, said, known, "")
            if len(said) == len(recorded.messages) and _ended_from_outside(recorded):
                return True
    return False


def _replayable_conversation(recorded: StoredSession) -> Conversation:
    """Return the conversation to replay, with native tool calls.

    The record contains parsed tool calls, so nothing must be parsed again. Without a recorded task
    specification, none is requested, because a run with the embedded model may request none.
    """
    conversation = recorded.conversation
    native = tuple(
        speaker.model_copy(update={"tool_calling": "native"}) for speaker in conversation.speakers
    )
    update: dict[str, Any] = {"speakers": native}
    lines = [metadata(message) for message in recorded.messages]
    is_asked = any(isinstance(about, SpecifiedTask) for about in lines)
    is_begun = any(isinstance(about, Draft) and about.speaker is None for about in lines)
    if lines and not is_asked and not is_begun:
        update["task_specification"] = None
    return conversation.model_copy(update=update)


_NOT_IN_THE_LOG: Final = (
    *(Reason.STOP_REQUESTED, Reason.MAX_COST, Reason.MAX_TOKENS, Reason.MAX_SECONDS),
)
"""Reasons of an end that the log alone does not determine."""


def _ended_from_outside(recorded: StoredSession) -> bool:
    """Return whether something other than the conversation's rules ended the record."""
    if recorded.outcome is None:
        return True
    # The log does not record the model calls of agents.
    by_calls = recorded.outcome.reason is Reason.MAX_CALLS and bool(recorded.conversation.agents)
    return by_calls or recorded.outcome.reason in _NOT_IN_THE_LOG


def _recorded_answer(question: Question, recorded: StoredSession, again: StoredSession) -> Any:  # noqa: ANN401
    """Return a person's answer to a question, or None if the record ends here."""
    rest = recorded.messages[len(again.messages) :]
    if rest and isinstance(metadata(rest[0]), InnerSession):
        raise SessionError(
            f"Session {recorded.session_id!r} can't be replayed from message {place_of(rest[0])}: "
            "an inner conversation asks a person; replay a session without people inside."
        )
    if isinstance(question, MessageQuestion):
        return message_given(question, rest, recorded.outcome)
    if isinstance(question, ApprovalQuestion):
        log = again.messages
        return decisions_given(question, recorded.conversation, log, rest, recorded.outcome)
    newest = place_of(again.messages[-1])
    raise SessionError(
        f"Session {recorded.session_id!r} can't be replayed after message {newest}: a tool asks a "
        "person, and no log records the answer; register a tool of the same name that does not ask."
    )


class _Recorded(ScriptedChatModel):
    """A model that repeats recorded answers. It reports a token usage of 0."""

    model_name: str
    max_tokens: int = 1
    """A limit above the usage of recorded answers, which is 0, so that no answer seems to reach the
    limit. The log marks the answers that were cut off.
    """

    _spoken: list[Reply | AIMessage] = PrivateAttr()
    _places: list[int] = PrivateAttr(default_factory=list)
    """The places of the answers that were used, in the order of the calls."""

    def __init__(self, answers: Sequence[Reply | AIMessage], model_name: str) -> None:
        script = [one if isinstance(one, Reply) else one.text for one in answers]
        # Streamed pieces would be parsed a second time, possibly with another result.
        super().__init__(script, model_name=model_name, disable_streaming=True)
        self._spoken = [*answers]

    def _play(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None,
        run_manager: BaseRunManager | None,
        kwargs: Mapping[str, Any],
    ) -> tuple[Prompt, Reply]:
        # The prompt is ignored; recording it would slow each call down.
        self._tape.record(Call((), {}))
        return [], self._tape.answer(kwargs["place"], [])

    def _place_of(self, number: int, run_manager: BaseRunManager | None) -> int:
        """Return the place of the answer to a call. Calls that are made at once have no order."""
        if number >= len(self._spoken) or _speaker_at_once(self._spoken[number]) is None:
            return number
        caller = run_manager.metadata.get("speaker") if run_manager is not None else None
        rest = (place for place in range(len(self._spoken)) if place not in self._places)
        own = (place for place in rest if _speaker_at_once(self._spoken[place]) == caller)
        return next(own, number)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: object,
    ) -> ChatResult:
        place = self._place_of(len(self._places), run_manager)
        self._places.append(place)
        found = await super()._agenerate(messages, stop, run_manager, place=place)
        answer = self._spoken[place]
        message = answer if isinstance(answer, AIMessage) else found.generations[0].message
        nothing = UsageMetadata(input_tokens=0, output_tokens=0, total_tokens=0)
        message = message.model_copy(update={"usage_metadata": nothing})
        return ChatResult(generations=[ChatGeneration(message=message)])


def _speaker_at_once(answer: Reply | AIMessage) -> str | None:
    """Return the speaker of an answer that was given at the same time as others, or None."""
    return answer.name if isinstance(answer, AIMessage) else None
