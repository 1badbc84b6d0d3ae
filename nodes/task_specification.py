"""The first node: takes the conversation or a kind's short form, and makes the task specific.

A rewrite over the word limit is asked for once more, then cut at a sentence (CAMEL's task
specification has no such check).
"""

from collections.abc import Mapping
from math import ceil
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from ..graphs.common.data import MARK_LENGTH
from ..graphs.common.errors import SessionError, SpecError
from ..graphs.common.validation import validated
from ..graphs.log.channels import log_of, update_of
from ..graphs.log.kinds import Kind
from ..graphs.log.messages import NOBODY, About, line, said
from ..graphs.log.state import State
from ..graphs.rules.position import Position
from ..graphs.speakers.formats import Marks
from ..graphs.spec.conversation import Conversation, Form
from ..graphs.spec.difference import first_difference
from ..graphs.spec.fields import TASK_TEMPERATURE, TaskSpecification
from ..graphs.spec.usage import Usage, dumped, used_so_far
from ..graphs.spec.versions import restored
from ..graphs.text.words import cut, words_in
from .models.answers import thought_of
from .prompts import tasks as prompts
from .step.resources import Moment, Resources
from .step.running import RunningSession


async def task_specification(state: State, resources: Resources) -> dict[str, Any]:
    """Take what a run was started with, and make the task specific."""
    known = state.get("spec")
    if known:
        conversation = restored(known)
        _refuse_another(_given(state, resources.form), conversation)
        if "position" in state:
            return {}
    else:
        given = _given(state, resources.form)
        if given is None:
            raise SpecError("conversation: is missing")
        conversation = await resources.check(given)
    spec = {} if known else {"spec": conversation.stored()}
    drafts = log_of(state)
    session, usage = RunningSession(conversation), used_so_far(state)
    moment = Moment(resources, session, Position(), drafts, usage, None)
    if conversation.task_specification is None:
        return spec | await _begin(moment, conversation.task, [], moment.usage)
    return spec | await _rewrite(moment, conversation.task_specification, conversation.task or "")


def _given(state: State, form: type[Form] | None) -> Conversation | None:
    """The conversation that a run was started with."""
    if state.get("conversation"):
        return restored(state["conversation"])
    if form is None:
        return None
    fields: Mapping[str, Any] = state
    data = {name: fields[name] for name in form.model_fields if fields.get(name) is not None}
    return validated(form, data).conversation()


def _refuse_another(given: Conversation | None, known: Conversation) -> None:
    differs = "" if given is None else first_difference(known, given)
    if differs:
        raise SessionError(
            f"this session belongs to another conversation: {differs} differs; start a new one"
        )


async def _rewrite(moment: Moment, specification: TaskSpecification, task: str) -> dict[str, Any]:
    limit = specification.word_limit
    names = moment.conversation.names
    worded = moment.conversation.worded
    prompt: list[AnyMessage] = [HumanMessage(prompts.task_request(task, names, limit, worded))]
    drafts = [one for one in moment.log if line(one).kind is Kind.DRAFT]
    if drafts:
        prompt += [
            AIMessage(drafts[-1].text),
            HumanMessage(line(drafts[-1]).problem or ""),
        ]
    model = await moment.model(specification.model)
    answer = await model.answer(
        prompt,
        moment.parameters(specification.generation, TASK_TEMPERATURE),
        purpose=Kind.SPECIFIED_TASK,
        # A model that is held to its form keeps the task, and adds to it.
        marks=Marks(lines=(f"{task.rstrip(' .')}.",)) if _fits(task, limit) else None,
    )
    usage = moment.used(model, answer)
    text = unquoted(answer.text)
    count = ceil(words_in(text))
    if count > limit and not drafts:
        problem = worded(prompts.TASK_TOO_LONG, count=count, limit=limit)
        about = About(kind=Kind.DRAFT, audience=NOBODY, problem=problem, thought=thought_of(answer))
        draft = said(len(moment.log), text, about, id=answer.id)
        return {"usage": dumped(usage), **update_of([draft], moment.log)}
    # A blank rewrite leaves the task as it was given.
    specified = cut(text, limit) or task
    about = About(kind=Kind.SPECIFIED_TASK, audience=NOBODY, thought=thought_of(answer))
    record = said(len(moment.log), specified, about, id=answer.id)
    return await _begin(moment, specified, [record], usage)


async def _begin(
    moment: Moment, task: str | None, new: list[AnyMessage], usage: dict[str, Usage]
) -> dict[str, Any]:
    """The update with which the speakers can begin."""
    return {"specified_task": task or ""} | await moment.step(Position(), new, usage)


def _fits(task: str, limit: int) -> bool:
    """Whether a task can begin its own rewriting."""
    return task.isprintable() and len(task) < MARK_LENGTH and len(task.split()) <= limit // 2


def unquoted(text: str) -> str:
    """Take white space and the quotes around a whole answer away."""
    text = text.strip()
    for opening, closing in ('""', "''", "“”", "``"):
        if len(text) > 1 and text[0] == opening and text[-1] == closing:
            return text[1:-1].strip()
    return text
