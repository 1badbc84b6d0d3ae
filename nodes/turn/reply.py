"""Where a speaker's reply comes from: its hooks, then what its spec names, tried in order."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage
from langgraph.config import get_stream_writer
from pydantic import BaseModel, JsonValue

from ...graphs.common.errors import SpecError
from ...graphs.log.kinds import Kind
from ...graphs.log.messages import Line, Source, said, storable
from ...graphs.log.stage import ALOUD
from ...graphs.log.viewpoint import heard_since, newly_heard
from ...graphs.rules.position import Event
from ...graphs.rules.turns import begins
from ...graphs.speakers.formats import Schema
from ...graphs.speakers.replies import CodeReply, FunctionReply, HumanReply, TextReply
from ...graphs.speakers.speaker import SPEAKER_TEMPERATURE, Speaker
from ...graphs.spec.usage import Usage
from ...tools.registry.functions import call
from ...tools.registry.hooks import Turn
from ..models.model import Model
from ..models.tool_calling.offered import offered
from ..models.tool_calling.to_user import Speaking, taken_out
from ..step.resources import Moment, session_id
from .hooks import before_speaker, sees_replies
from .outputs import code_heard, given_by
from .prompt import asked_of, mending, prompt_of, view_of


class Given(NamedTuple):
    """A reply as it was given."""

    message: AIMessage
    """The reply: text, or calls of tools."""
    source: Source
    """What gave it."""
    new: list[AnyMessage]
    """New lines of the log in front of it."""
    usage: dict[str, Usage]
    """What was used so far."""
    parsed: JsonValue = None
    """What it says, as plain values, where what gave it knows."""


async def reply_of(moment: Moment, speaker: Speaker, said_by_person: str | None) -> Given:
    """Get the reply of the speaker whose turn it is."""
    match moment.position.event:
        case Event.GIVEN:
            output = given_by(moment.log)
            return Given(AIMessage(output.text), output.source, [], moment.usage, output.parsed)
        case Event.REJECTED | Event.RETURNED:
            # In the middle of a turn it is the model's.
            return await _model(moment, speaker, [])
        case _:
            return await _first_of(moment, speaker, said_by_person)


async def _first_of(moment: Moment, speaker: Speaker, said_by_person: str | None) -> Given:
    """Get a turn's first reply."""
    new, text = await _by_hooks(moment, speaker)
    if said_by_person is not None:
        return Given(AIMessage(storable(said_by_person)), Source.HUMAN, new, moment.usage)
    if text is not None:
        return Given(AIMessage(text), Source.HOOK, new, moment.usage)
    return await _by_replies(moment, speaker, new)


async def _by_hooks(moment: Moment, speaker: Speaker) -> tuple[list[AnyMessage], str | None]:
    """What the hooks in front make of what was heard, and the reply where one of them gives it."""
    hooks = moment.resources.registry.hooks_of(speaker)
    if not hooks:
        return [], None
    turn = turn_of(moment, speaker, moment.log)
    changed, given = await before_speaker(hooks, turn)
    new = [] if changed.heard == turn.heard else [_heard(moment, speaker, changed.heard)]
    return new, given


async def _by_replies(moment: Moment, speaker: Speaker, new: list[AnyMessage]) -> Given:
    """Get the reply from what the spec names, but for people."""
    is_first = moment.turn.stage in ALOUD and begins(
        moment.conversation, moment.position, speaker.name
    )
    for reply in speaker.replies:
        if isinstance(reply, HumanReply):
            continue
        if isinstance(reply, TextReply):
            if reply.once and not is_first:
                continue
            return Given(AIMessage(reply.text), Source.TEXT, new, moment.usage)
        if isinstance(reply, FunctionReply):
            text = await _function(moment, speaker, reply.name, new)
            if text is not None:
                return Given(AIMessage(text), Source.FUNCTION, new, moment.usage)
        elif isinstance(reply, CodeReply):
            message = code_heard([*moment.log, *new], speaker.name)
            if message is not None:
                return Given(message, Source.CODE, new, moment.usage)
        else:
            return await _model(moment, speaker, new)
    return Given(AIMessage(""), Source.FUNCTION, new, moment.usage)


def turn_of(moment: Moment, speaker: Speaker, log: Sequence[BaseMessage]) -> Turn:
    """Give the turn as functions and hooks see it."""
    view = tuple(view_of(moment, speaker, log))
    return Turn(
        session_id(), speaker.name, view, newly_heard(moment.conversation, log, speaker.name)
    )


def _heard(moment: Moment, speaker: Speaker, text: str) -> AnyMessage:
    about = Line(
        kind=Kind.HEARD,
        audience=(speaker.name,),
        instead_of=tuple(heard_since(moment.log, speaker.name)),
    )
    return said(len(moment.log), text, about)


async def _function(
    moment: Moment, speaker: Speaker, name: str, new: Sequence[AnyMessage]
) -> str | None:
    function = moment.resources.registry.function(name)
    turn = turn_of(moment, speaker, [*moment.log, *new])
    text = await call("function", name, function, turn)
    if text is not None and not isinstance(text, str):
        kind = type(text).__name__
        raise SpecError(f"the function {name!r} failed: it must give text or None, not {kind}")
    return None if text is None else storable(text)


async def _model(moment: Moment, speaker: Speaker, new: list[AnyMessage]) -> Given:
    model = await moment.model(speaker.model)
    parameters = moment.parameters(speaker.generation, SPEAKER_TEMPERATURE)
    schema = _held_to(moment, speaker)

    async def ask(log: list[BaseMessage]) -> tuple[AIMessage, None]:
        prompt = prompt_of(moment, speaker, log, small=model.is_embedded)
        if schema is not None:
            return await _structured(moment, speaker, model, schema, prompt, parameters), None
        return await _text(moment, speaker, model, prompt, parameters), None

    found = await asked_of(
        moment,
        speaker,
        model,
        ask,
        new=new,
        most=parameters.get("max_tokens"),
        small=model.is_embedded,
        behind=mending(moment),
    )
    return Given(found.answer, Source.MODEL, found.new, found.usage)


def _held_to(moment: Moment, speaker: Speaker) -> type[BaseModel] | None:
    """The pydantic model that the answer is held to, where it is."""
    wanted = speaker.format
    if not isinstance(wanted, Schema) or wanted.form != "structured":
        return None
    return moment.resources.registry.schema_of(speaker)


async def _text(
    moment: Moment,
    speaker: Speaker,
    model: Model,
    prompt: list[BaseMessage],
    parameters: dict[str, object],
) -> AIMessage:
    may_call = moment.position.tool_rounds < moment.conversation.max_tool_rounds
    # An endpoint that writes its calls as text goes on writing them unless it is told not to.
    is_told = may_call or model.by_schema(speaker.tool_calling)
    purpose = _purpose(moment, speaker)
    # What hooks see first is not told before.
    is_heard = speaker.to_user and purpose is Kind.SPEECH
    speaking = Speaking(_teller(speaker.name)) if is_heard else None
    answer = await model.answer(
        prompt,
        parameters,
        purpose=purpose,
        speaker=speaker.name,
        marks=speaker.marks,
        tools=offered(moment.resources.registry, speaker) if is_told else (),
        tool_choice=_choice(moment, speaker) if may_call else "none",
        tool_calling=speaker.tool_calling,
        listener=speaking,
    )
    return taken_out(answer, speaking) if speaker.to_user else answer


def _teller(name: str) -> Callable[[str], None]:
    """Hands on what a speaker says beside its calls, to whoever follows the stream."""
    tell = get_stream_writer()
    return lambda text: tell({"speech": {"speaker": name, "text": text}})


def _choice(moment: Moment, speaker: Speaker) -> str:
    """What the speaker must call; once a call has succeeded, it may speak, too."""
    choice = speaker.tool_choice
    return choice if choice == "none" or moment.position.tool_rounds == 0 else "auto"


def _purpose(moment: Moment, speaker: Speaker) -> Kind:
    """What an answer is: a speech, which is shown while it comes, or what hooks see first."""
    hooks = moment.resources.registry.hooks_of(speaker)
    # A person who follows it must not see what another keeps to itself.
    opens = moment.turn.stage not in ALOUD
    hides = opens and any(one.human for one in moment.conversation.speakers if one != speaker)
    return Kind.ANSWER if hides or sees_replies(hooks) else Kind.SPEECH


async def _structured(
    moment: Moment,
    speaker: Speaker,
    model: Model,
    schema: type[BaseModel],
    prompt: list[BaseMessage],
    parameters: dict[str, object],
) -> AIMessage:
    number = moment.conversation.names.index(speaker.name)
    answer, _ = await model.structured(
        prompt,
        schema,
        parameters,
        purpose=_purpose(moment, speaker),
        instead=f'speakers.{number}.format.form = "text"',
        speaker=speaker.name,
        tool_calling=speaker.tool_calling,
    )
    return answer
