"""Asking a person for a message, where the rules say so."""

from typing import NamedTuple

from ...graphs.log.heard import newly_heard
from ...graphs.log.messages import newest_calls
from ...graphs.rules.ends.met_ends import explain_guards
from ...graphs.rules.people import asking, asking_of_calls, meaning
from ...graphs.rules.position import Leaving, Phase
from ...graphs.rules.turns import NextTurn
from ...graphs.spec.questions import Asking, Because, payload, schema_of
from ..step.asking import ask
from ..step.resources import Moment


async def asked_for_message(moment: Moment) -> Leaving | str | None:
    """Ask the person who speaks for the speaker whose turn begins, if one is asked."""
    turn = NextTurn(moment.turn.speaker, moment.turn.stage)
    asked = asking(moment.conversation, moment.position, turn)
    if asked is None:
        if moment.conversation.speaker(turn.speaker).human is None:
            return None
        brought = moment.brought(turn.speaker)
        return None if brought is None else brought.text
    tallies = moment.reader.tallies(moment.log)
    why = explain_guards(moment.conversation, moment.position, tallies)
    if why and asked.because is Because.TURN:
        asked = asked._replace(because=Because.GUARD, why=why)
    return await _answer(moment, asked)


class Interruption(NamedTuple):
    """What a person says to calls that wait."""

    speaker: str
    """Whom the person speaks for."""
    text: str
    """What is said, which interrupts them; empty where they are run."""


async def asked_about_calls(moment: Moment) -> Leaving | Interruption | None:
    """Ask the person who is to see the calls that wait, if there is one."""
    asked = asking_of_calls(moment.conversation, moment.position, moment.turn.speaker)
    if asked is None:
        return None
    found = await _answer(moment, asked)
    return found if isinstance(found, Leaving) else Interruption(asked.speaker, found)


async def _answer(moment: Moment, asked: Asking) -> Leaving | str:
    """Ask, and say what the answer means; empty where something else replies."""
    brought = moment.brought(asked.speaker)
    if brought is not None:
        return meaning(asked, brought.text) or ""
    heard = newly_heard(moment.conversation, moment.log, asked.speaker)
    calls = newest_calls(moment.log).tool_calls if moment.position.phase is Phase.CALLED else ()
    own = moment.conversation.speaker(asked.speaker).task
    task = "\n\n".join(filter(None, [moment.task, own]))
    question = payload(asked, task, heard, calls)
    again = moment.resources.asks_again
    found = meaning(asked, ask(question, schema_of(asked.empty), asks_again=again))
    if moment.resources.written is not None:
        # LangGraph does not wait for it: a kill after this would have the person asked again.
        await moment.resources.written()
    return found or ""
