"""The two nodes that speak: the user agent and the assistant agent.

One turn is: viewpoint, model, check of the reply, log. Each model call is a step of the graph of
its own, so that nothing answered and recorded is asked for again after a kill.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from duologue.graphs.end_chat import Decision, paused, spoke
from duologue.graphs.log import NOBODY, Flaw, Kind, Line, line, message_id, said
from duologue.graphs.position import Event, Stage
from duologue.graphs.speaker import SPEAKER_TEMPERATURE, Speaker
from duologue.graphs.spec import Conversation
from duologue.graphs.state import State
from duologue.graphs.viewpoint import viewpoint
from duologue.nodes import prompts
from duologue.nodes.checks import find_problem
from duologue.nodes.resources import Moment, Resources


async def speak(state: State, resources: Resources) -> dict[str, Any]:
    """Let the speaker whose turn it is speak, or call tools.

    Args:
        state: The session's state.
        resources: Models and functions.

    Returns:
        The update of the state.

    Raises:
        ModelError: The model did not answer; the session can be resumed.
        SpecError: The price table lacks the model, or a predicate failed.
    """
    moment = Moment.of(state, resources)
    conversation, position, turn = moment.conversation, moment.position, moment.turn
    speaker = _as_in(turn.stage, conversation.speaker(turn.speaker))
    model = await moment.model(speaker.model)
    may_call = position.tool_rounds < conversation.max_tool_rounds
    answer = await model.answer(
        prompt_of(moment, speaker, small=model.is_embedded),
        speaker.generation.parameters(SPEAKER_TEMPERATURE),
        purpose=Kind.SPEECH,
        speaker=speaker.name,
        marks=speaker.marks,
        tools=resources.registry.of(speaker) if may_call else (),
    )
    usage = moment.used(model, answer)
    number = len(moment.log)
    about = Line(
        kind=Kind.SPEECH,
        speaker=speaker.name,
        audience=_audience(conversation, turn),
        stage=turn.stage,
    )

    if may_call and (answer.tool_calls or answer.invalid_tool_calls):
        ids = fresh_ids(answer, moment.log)
        called = said(
            number,
            answer.text,
            about.model_copy(update={"kind": Kind.TOOL_CALLS}),
            tool_calls=[{**call, "id": next(ids)} for call in answer.tool_calls],
            invalid_tool_calls=[{**call, "id": next(ids)} for call in answer.invalid_tool_calls],
        )
        return await moment.step(paused(conversation, position, Event.CALLED), [called], usage)

    problem = find_problem(conversation, speaker, answer.text, moment.log)
    if turn.stage is Stage.PRIVATE and problem is not None and problem.flaw is Flaw.ROLE_FLIP:
        # What it says to itself is nobody's part.
        problem = None
    if problem is not None:
        about = about.model_copy(update={"flaw": problem.flaw, "problem": problem.text})
        if not position.asked_again:
            about = about.model_copy(update={"kind": Kind.DRAFT, "audience": NOBODY})
            draft = said(number, answer.text, about)
            return await moment.step(paused(conversation, position, Event.REJECTED), [draft], usage)
    spoken = said(number, answer.text, about)
    return await moment.step(spoke(conversation, position), [spoken], usage)


def _as_in(stage: Stage, speaker: Speaker) -> Speaker:
    """A speaker as it is in a stage: what it makes up for itself has no form that others read."""
    return speaker.model_copy(update={"format": None}) if stage is Stage.PRIVATE else speaker


def _audience(conversation: Conversation, turn: Decision) -> tuple[str, ...] | None:
    alone = turn.stage is Stage.PRIVATE or (
        turn.stage is Stage.OPENING and not conversation.opening.reconcile
    )
    return (turn.speaker,) if alone else None


def fresh_ids(answer: AIMessage, log: Sequence[BaseMessage]) -> Iterator[str]:
    """Give each call of an answer an id that no other call of the log has.

    Some servers send none, or begin anew at each turn, and results are found by these ids.

    Args:
        answer: What the model answered.
        log: What was said before.

    Yields:
        The ids, those of calls with broken arguments last: the given one where it is new.
    """
    seen = {
        call["id"]
        for message in log
        if isinstance(message, AIMessage)
        for call in (*message.tool_calls, *message.invalid_tool_calls)
    }
    for place, call in enumerate((*answer.tool_calls, *answer.invalid_tool_calls)):
        given = call["id"]
        call_id = given if given and given not in seen else f"{message_id(len(log))}-{place}"
        seen.add(call_id)
        yield call_id


def prompt_of(moment: Moment, speaker: Speaker, *, small: bool) -> list[BaseMessage]:
    """Give what is sent to the model for a speaker's turn.

    Args:
        moment: The session's state.
        speaker: Whose turn it is.
        small: Whether a very small model speaks.

    Returns:
        The speaker's viewpoint; behind it the rejected draft and what was wrong with it, where the
        speaker is asked once more.
    """
    conversation = moment.conversation
    system = prompts.system_prompt(conversation, speaker, moment.task)
    view = viewpoint(conversation, moment.log, speaker.name, system=system)
    if small and speaker.brief is not None:
        task = conversation.task or speaker.task or ""
        view = prompts.briefly(view, speaker.brief, moment.task or task, task)
    if moment.position.event is not Event.REJECTED:
        return view
    draft = moment.log[-1]
    request = prompts.filled(prompts.MEND, problem=line(draft).problem)
    # A blank draft can't be sent, and says nothing that the request does not.
    if draft.text.strip():
        return [*view, AIMessage(draft.text), HumanMessage(request)]
    # Two turns in one role are refused, but a tool's answer must stay behind its call.
    if isinstance(view[-1], HumanMessage):
        return [*view[:-1], HumanMessage(f"{view[-1].text}\n\n{request}")]
    return [*view, HumanMessage(request)]
