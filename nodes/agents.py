"""The two nodes that speak: the user agent and the assistant agent.

One turn is: viewpoint, model, check of the reply, log. Each model call is a step of the graph of
its own, so that nothing answered and recorded is asked for again after a kill.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage

from duologue.graphs.end_chat import Decision, Event, Stage, decide, paused, spoke
from duologue.graphs.log import NOBODY, Kind, Line, line, message_id, said
from duologue.graphs.spec import SPEAKER_TEMPERATURE, Conversation, Speaker
from duologue.graphs.state import State
from duologue.graphs.viewpoint import viewpoint
from duologue.nodes import prompts
from duologue.nodes.checks import find_problem, says_done
from duologue.nodes.resources import Moment, Resources, notify


async def speak(state: State, resources: Resources) -> dict[str, Any]:
    """Let the speaker whose turn it is speak, or call tools.

    Args:
        state: The session's state.
        resources: Models and tools.

    Returns:
        The update of the state.

    Raises:
        ModelError: The model did not answer; the session can be resumed.
    """
    moment = Moment.of(state)
    conversation, position, turn = moment.conversation, moment.position, moment.turn
    speaker = conversation.speaker(turn.speaker)
    model = await resources.models.get(speaker.model or conversation.model, notify)
    may_call = position.tool_rounds < conversation.max_tool_rounds
    answer = await model.answer(
        prompt_of(moment, speaker, small=model.is_embedded),
        speaker.generation.parameters(SPEAKER_TEMPERATURE),
        purpose=Kind.SPEECH,
        speaker=speaker.name,
        marks=speaker.format,
        tools=resources.tools.of(speaker) if may_call else (),
    )
    usage = moment.used(model.label, answer)
    number = len(moment.log)
    audience = (speaker.name,) if turn.stage is Stage.OPENING else None

    if may_call and (answer.tool_calls or answer.invalid_tool_calls):
        ids = fresh_ids(answer, moment.log)
        called = said(
            number,
            answer.text,
            Line(kind=Kind.TOOL_CALLS, speaker=speaker.name, audience=audience),
            tool_calls=[{**call, "id": next(ids)} for call in answer.tool_calls],
            invalid_tool_calls=[{**call, "id": next(ids)} for call in answer.invalid_tool_calls],
        )
        return moment.step(paused(conversation, position, Event.CALLED), [called], usage)

    problem = find_problem(conversation, speaker, answer.text, moment.log)
    if problem is not None and not position.asked_again:
        about = Line(kind=Kind.DRAFT, speaker=speaker.name, audience=NOBODY, problem=problem.text)
        draft = said(number, answer.text, about)
        return moment.step(paused(conversation, position, Event.REJECTED), [draft], usage)

    about = Line(
        kind=Kind.SPEECH,
        speaker=speaker.name,
        audience=audience,
        problem=problem.text if problem is not None else None,
    )
    spoken = said(number, answer.text, about)
    after = spoke(
        conversation,
        position,
        said_done=says_done(conversation, speaker, answer.text),
        flipped_role=problem is not None and problem.kind == "role_flip",
    )
    lines: list[AnyMessage] = [spoken]
    following = decide(conversation, after)
    if turn.stage is Stage.OPENING and following.stage is Stage.ROUNDS:
        lines.append(_shift(conversation, following, [*moment.log, spoken]))
    return moment.step(after, lines, usage)


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


def first_lines(conversation: Conversation) -> list[AnyMessage]:
    """Give what speakers are told before anyone speaks.

    Args:
        conversation: The spec.

    Returns:
        Each speaker's own task where all answer theirs first, else the line that has the first
        speaker begin.
    """
    if conversation.opening.answers:
        return [
            said(number, speaker.task or "", _told(speaker.name))
            for number, speaker in enumerate(conversation.speakers)
        ]
    text = conversation.opening.first_line or prompts.BEGIN
    return [said(0, text, _told(conversation.order[0]))]


def _shift(
    conversation: Conversation, following: Decision, log: Sequence[BaseMessage]
) -> AnyMessage:
    """The line between the opening answers and the rounds, for the one who speaks next."""
    owner = following.speaker
    given = conversation.opening.first_line
    if given is not None:
        return said(len(log), given, _told(owner))
    before = conversation.order[-1]
    answer = next(
        message
        for message in reversed(log)
        if line(message).kind is Kind.SPEECH and line(message).speaker == before
    )
    about = Line(kind=Kind.SHIFT, speaker=before, audience=(owner,))
    return said(len(log), answer.text, about)


def _told(name: str) -> Line:
    return Line(kind=Kind.INSTRUCTION, audience=(name,))
