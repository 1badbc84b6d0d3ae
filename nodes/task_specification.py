"""The first node: reads the conversation, or its kind's short form, and makes the task specific.

If a rewritten task repeats the request, adds nothing or exceeds the word limit, the model is asked
once more. If the second rewrite exceeds the limit, it is cut at a sentence. If it has one of the
other problems, the original task is kept. (CAMEL's task specification has no such checks.)
"""

from math import ceil
from typing import Any, NamedTuple, cast

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.runtime import get_runtime

from ..graphs.common.data import MARK_LENGTH
from ..graphs.common.errors import SessionError, SpecError
from ..graphs.conversation.conversation import Conversation
from ..graphs.conversation.conversation_options import first_difference
from ..graphs.conversation.fields import TASK_TEMPERATURE, TaskSpecification
from ..graphs.conversation.served import AssistantSettings, prompts_set
from ..graphs.conversation.usage import dump_usage, read_usage
from ..graphs.log.memory import list_known
from ..graphs.log.messages import metadata
from ..graphs.log.metadata import NOBODY, Draft, Flaw, SpecifiedTask
from ..graphs.log.state import State, apply_update, hide_removed, log_of, update_of
from ..graphs.prompts import prompts
from ..graphs.prompts.prompts import RenderPrompt
from ..graphs.rules.position import Position
from ..graphs.rules.turns import Problem
from ..graphs.speakers.formats import LabelledFormat
from ..graphs.text.similarity import is_rewritten
from ..graphs.text.words import cut, words_in
from .models.answers import get_thought
from .turn.node_context import NodeContext, Resources, session_id
from .turn.run_input import (
    RunInput,
    continue_session,
    empty_session,
    is_new_task,
    join_updates,
    read_requested_conversation,
)


class Start(NamedTuple):
    """The input of a run, read and checked."""

    state: State
    """The state, with the messages that the session had before this run. It contains no messages if
    a new conversation begins.
    """
    begun: dict[str, Any]
    """The update that stores the input."""
    conversation: Conversation
    """The conversation of this run."""
    run_input: RunInput
    """The messages of the input."""
    sayer: str | None = None
    """The name of the speaker whose person sends the user's newest message. None if no speaker says
    this message.
    """
    is_first: bool = False
    """Whether the conversation begins with this run."""
    is_complete: bool = False
    """Whether `begun` is the node's whole update, because the task is already known."""


async def read_start(state: State, resources: Resources, context: object) -> Start:
    """Read and check the input of a run, without calling a model or writing anything.

    Args:
        state: The state, including the input.
        resources: The resources that the graph was built with.
        context: The run's context, such as the settings of an assistant.

    Raises:
        SpecError: The input is not valid.
        SessionError: The input does not fit the session.
    """
    context = context if resources.serves_clients and not resources.is_inner else None
    begun: dict[str, Any] = {**hide_removed(state)}
    state = apply_update(state, begun)
    run_input = RunInput.read(state)
    served = resources.running.served
    known = resources.running.restore(state["spec"]) if state.get("spec") else None
    state = {**state, "messages": run_input.known}
    is_new = known is not None and is_new_task(run_input, known, state)
    if is_new:
        begun, known = join_updates(begun, empty_session(state, run_input)), None
        state = {**state, "messages": [], "unspoken": [], "usage": {}}
    if known is None and resources.form is not None:
        given_fields = {name: value for name, value in state.items() if value is not None}
        state = cast("State", prompts_set(resources.form, context) | given_fields)
    given = read_requested_conversation(
        state, resources.form, run_input, is_new=is_new, served=served
    )
    if known is None:
        if given.conversation is None:
            raise SpecError("conversation: is missing")
        # The run's own fields take precedence over the assistant's settings. Neither changes a
        # served conversation.
        settings = AssistantSettings() if served else AssistantSettings.of(context)
        conversation = await resources.check(settings.applied_to(given.conversation))
        begun = begun | {"spec": conversation.stored(), **given.filled}
    else:
        conversation = known
        if served is not None:
            # Another version of the conversation, or a client, may have written the spec.
            begun = begun | {"spec": conversation.stored()}
        elif given.conversation is not None:
            differs = first_difference(conversation, given.conversation)
            if differs:
                raise SessionError(
                    f"this session belongs to another conversation: {differs} differs; start a "
                    "new session"
                )
            # Another process has not registered the objects that the conversation names.
            resources.registry.bring(given.conversation)
        if state.get("position"):
            begun = join_updates(begun, continue_session(state, conversation, run_input))
            return Start(state, begun, conversation, run_input, is_complete=True)
    if isinstance(run_input.content, list) and (given.is_task or not conversation.people):
        raise SpecError(
            "messages.content: no person takes part in this conversation, so the message is its "
            "task, which has no files; send only text"
        )
    is_said = run_input.text is not None and not given.is_task
    sayer = run_input.find_sayer(conversation) if is_said else None
    begun = join_updates(begun, {"messages": run_input.keep_messages(sayer)})
    return Start(state, begun, conversation, run_input, sayer, is_first=known is None)


async def task_specification(state: State, resources: Resources) -> dict[str, Any]:
    """Store the input of a run, and make the task specific."""
    start = await read_start(state, resources, get_runtime().context)
    state, conversation = start.state, start.conversation
    if start.is_complete:
        # The task is always written, so that a run of a session that has ended returns its state.
        return {"specified_task": state.get("specified_task", ""), **start.begun}
    drafts = log_of(state)
    session, usage = resources.running.make_session(conversation), read_usage(state)
    if start.is_first:
        resources.running.begin(session_id(), start.begun["spec"], session)
    context = NodeContext(
        session.conversation,
        Position(),
        log=drafts,
        resources=resources,
        session=session,
        usage=usage,
    )
    specification = conversation.task_specification
    update = None if specification is None else await _rewrite(context, specification)
    if update is None:
        if start.sayer is not None and start.is_first:
            context.new.extend(start.run_input.make_memories(conversation, start.sayer))
        update = await _begin(context, conversation.task)
    return join_updates(start.begun, update)


async def _rewrite(context: NodeContext, specification: TaskSpecification) -> dict[str, Any] | None:
    """Ask for a more specific task, or return None if this model is not asked to rewrite it."""
    conversation, model = context.conversation, await context.model(specification.model)
    task, limit = conversation.task or "", specification.word_limit
    render_prompt = conversation.render_prompt
    request = model.adapter.prompting.task_request(
        specification, task, conversation.names, render_prompt
    )
    if request is None:
        return None
    prompt: list[AnyMessage] = [HumanMessage(request)]
    drafts = [
        (one.text, about.problem or "")
        for one in context.log
        if isinstance(about := metadata(one), Draft)
    ]
    if drafts:
        rewrite, request = drafts[-1]
        prompt += [AIMessage(rewrite), HumanMessage(request)]
    # A model can be made to begin its answer with a short task.
    is_short = task.isprintable() and len(task) < MARK_LENGTH and len(task.split()) <= limit // 2
    if context.resources.written is not None:
        # A new session acquires its lease by this write, and a second run of it must not call.
        await context.resources.written()
    answer = await model.answer(
        prompt,
        context.settings(
            "task_specification.model_settings", specification.model_settings, TASK_TEMPERATURE
        ),
        purpose=SpecifiedTask,
        marks=LabelledFormat(lines=(f"{task.rstrip(' .')}.",)) if is_short else None,
    )
    context.count_call(model, answer)
    text = _remove_quotes(answer.text)
    problem = _find_problem(text, task, limit, render_prompt)
    thought = get_thought(answer)
    if problem is not None and not drafts:
        rejected = Draft(audience=NOBODY, flaw=problem.flaw, problem=problem.text, thought=thought)
        context.add(text, rejected, answer)
        return {"usage": dump_usage(context.usage), **update_of(context.new, context.log)}
    is_kept = problem is not None and problem.flaw is Flaw.NO_REPLY
    # A blank rewritten task keeps the original, too.
    specified = task if is_kept else cut(text, limit) or task
    about = SpecifiedTask(
        audience=NOBODY,
        thought=thought,
        problem=problem.text if is_kept and problem is not None else None,
    )
    context.add(specified, about, answer)
    return await _begin(context, specified)


def _find_problem(text: str, task: str, limit: int, render_prompt: RenderPrompt) -> Problem | None:
    """Return the problem of a rewritten task, or None.

    A blank text has no problem here, because the caller then keeps the original task.
    """
    if not text:
        return None
    # A task over the limit can only be shortened, so its rewrite need not add anything.
    is_long = words_in(task) > limit
    if not is_long and not is_rewritten(
        task, text, prompts.join_task_requests(limit, render_prompt)
    ):
        request = render_prompt(prompts.REWRITE_TASK, limit=limit)
        return Problem(flaw=Flaw.NO_REPLY, text=request)
    count = ceil(words_in(text))
    if count <= limit:
        return None
    return Problem(
        flaw=Flaw.FORM, text=render_prompt(prompts.SHORTEN_TASK, count=count, limit=limit)
    )


async def _begin(context: NodeContext, task: str | None) -> dict[str, Any]:
    """Return the update that lets the speakers begin."""
    context.new.extend(list_known(context.conversation, context.next_place()))
    return {"specified_task": task or ""} | await context.step(Position())


def _remove_quotes(text: str) -> str:
    """Remove white space, and quotes around the whole text."""
    text = text.strip()
    for opening, closing in ('""', "''", "“”", "``"):
        if len(text) > 1 and text[0] == opening and text[-1] == closing:
            return text[1:-1].strip()
    return text
