"""Where a speaker's reply comes from: its hooks, then what its spec names, tried in order."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from langchain_core.messages import AIMessage, AnyMessage

from ...graphs.common.errors import SpecError
from ...graphs.log.messages import make_message, storable
from ...graphs.log.metadata import ALOUD, HookVersion, Source
from ...graphs.log.viewpoint import heard_since
from ...graphs.rules.position import Phase
from ...graphs.rules.turns import begins
from ...graphs.speakers.replies import (
    AgentReply,
    AnyReply,
    CodeReply,
    FunctionReply,
    HumanReply,
    ModelReply,
    TextReply,
)
from ...graphs.speakers.speaker import Speaker
from ...tools.registry.functions import call
from .agents import ask_agent
from .context import NodeContext
from .hooks import DraftReply, before_speaker, turn_of
from .model_reply import ask_for_reply
from .record import code_calls, outputs_of_calls


async def reply_of(moment: NodeContext, speaker: Speaker, said_by_person: str | None) -> DraftReply:
    """Get the reply of the speaker whose turn it is."""
    match moment.position.phase:
        case Phase.GIVEN:
            output = outputs_of_calls(moment.log)
            return DraftReply(
                AIMessage(output.text), output.source, [], moment.usage, output.parsed
            )
        case Phase.REJECTED | Phase.CUT_OFF | Phase.RETURNED:
            # In the middle of a turn it is the model's.
            return await ask_for_reply(moment, speaker, [])
        case _:
            return await _first_of(moment, speaker, said_by_person)


async def _first_of(
    moment: NodeContext, speaker: Speaker, said_by_person: str | None
) -> DraftReply:
    """Get a turn's first reply."""
    new, text = await _by_hooks(moment, speaker)
    if said_by_person is not None:
        return DraftReply(AIMessage(storable(said_by_person)), Source.HUMAN, new, moment.usage)
    if text is not None:
        return DraftReply(AIMessage(text), Source.HOOK, new, moment.usage)
    return await _by_replies(moment, speaker, new)


async def _by_hooks(moment: NodeContext, speaker: Speaker) -> tuple[list[AnyMessage], str | None]:
    """What the hooks in front make of what was heard, and the reply where one of them gives it."""
    hooks = moment.resources.registry.hooks_of(speaker)
    if not hooks:
        return [], None
    turn = turn_of(moment, speaker, moment.log)
    changed, given = await before_speaker(hooks, turn)
    new = [] if changed.heard == turn.heard else [_heard(moment, speaker, changed.heard)]
    return new, given


def _heard(moment: NodeContext, speaker: Speaker, text: str) -> AnyMessage:
    about = HookVersion(
        audience=(speaker.name,),
        instead_of=tuple(heard_since(moment.log, speaker.name)),
    )
    return make_message(len(moment.log), text, about)


async def _by_replies(moment: NodeContext, speaker: Speaker, new: list[AnyMessage]) -> DraftReply:
    """Get the reply from the first of what the spec names that gives one, but for people."""
    for reply in speaker.replies:
        given = await _GIVERS[type(reply)](moment, speaker, reply, new)
        if given is not None:
            return given
    return DraftReply(AIMessage(""), Source.FUNCTION, new, moment.usage)


async def _by_person(*_: object) -> None:
    """Nothing: whoever speaks for the speaker is asked before, and has left it to the others."""


async def _by_text(
    moment: NodeContext, speaker: Speaker, reply: TextReply, new: list[AnyMessage]
) -> DraftReply | None:
    is_first = moment.turn.stage in ALOUD and begins(
        moment.conversation, moment.position, speaker.name
    )
    if reply.once and not is_first:
        return None
    return DraftReply(AIMessage(reply.text), Source.TEXT, new, moment.usage)


async def _by_function(
    moment: NodeContext, speaker: Speaker, reply: FunctionReply, new: list[AnyMessage]
) -> DraftReply | None:
    function = moment.resources.registry.function(reply.name)
    turn = turn_of(moment, speaker, [*moment.log, *new])
    text = await call("function", reply.name, function, turn)
    if text is None:
        return None
    if not isinstance(text, str):
        kind = type(text).__name__
        raise SpecError(
            f"the function {reply.name!r} failed: it must give text or None, not {kind}"
        )
    return DraftReply(AIMessage(storable(text)), Source.FUNCTION, new, moment.usage)


async def _by_agent(
    moment: NodeContext, speaker: Speaker, reply: AgentReply, new: list[AnyMessage]
) -> DraftReply:
    agent = moment.resources.registry.agent(reply.name)
    turn = turn_of(moment, speaker, [*moment.log, *new])
    message, parsed, usage = await ask_agent(
        agent,
        reply.name,
        turn,
        moment.usage,
        moment.conversation,
        moment.resources.models.gate,
    )
    return DraftReply(message, Source.AGENT, new, usage, parsed)


async def _by_code(
    moment: NodeContext, speaker: Speaker, _: CodeReply, new: list[AnyMessage]
) -> DraftReply | None:
    message = code_calls(moment.conversation, [*moment.log, *new], speaker)
    return None if message is None else DraftReply(message, Source.CODE, new, moment.usage)


async def _by_model(
    moment: NodeContext, speaker: Speaker, _: ModelReply, new: list[AnyMessage]
) -> DraftReply:
    return await ask_for_reply(moment, speaker, new)


_GIVERS: Final[Mapping[type[AnyReply], Callable[..., Awaitable[DraftReply | None]]]] = {
    HumanReply: _by_person,
    TextReply: _by_text,
    FunctionReply: _by_function,
    AgentReply: _by_agent,
    CodeReply: _by_code,
    ModelReply: _by_model,
}
"""What gives each kind of reply; None where it gives none, and the next is tried."""
