"""Long histories in drawn conversations: every prompt of a model of a small context."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from hypothesis import strategies as st
from langchain_core.messages import BaseMessage

from drawn.player import Narrow, cuts_of, followed
from drawn.talks import long_talks
from duologue.graphs import Conversation
from duologue.graphs.events import HistoryShortened, Notice
from support.cases import drawn_cases
from support.log import fields_of, kind_of, place_of
from support.shape_help import well_formed


def is_asked_as_speaker(conversation: Conversation, messages: Sequence[BaseMessage]) -> bool:
    """Return whether the prompt is a speaker's, and not a judge's, moderator's or summarizer's."""
    return any(messages[0].text.startswith(f"You are {name},") for name in conversation.names)


PADS = ("", " And so on.", " And so on, and so on, and so on and on." * 2)


def room(conversation: Conversation, pad: str) -> tuple[int, int]:
    """Return an upper bound of the characters and messages that no cut may remove."""
    people, speech = len(conversation.names), 70 + len(pad)
    answers = (people * (speech + 40)) * conversation.opening.answers
    tools = 250 * any(speaker.tools for speaker in conversation.speakers)
    # The sum of the fixed parts and questions, the pinned messages, and the newest turn.
    characters = 900 + 2 * speech + answers + 3 * tools + (people + 1) * (speech + 30)
    return characters, 16 + 4 * people


@drawn_cases(
    1,
    12,
    conversation=st.booleans().flatmap(lambda it: long_talks(policies=it)),
    seed=st.integers(0, 999),
    pad=st.sampled_from(PADS),
    by=st.sampled_from(("characters", "messages", "both")),
    like=st.sampled_from(("openai", "llama.cpp")),
)
def test_a_model_that_takes_little_never_makes_a_conversation_fail(
    conversation: Conversation, seed: int, pad: str, by: str, like: Literal["openai", "llama.cpp"]
) -> None:
    """U5: the history is shortened until it fits, and the stream and the log show it."""
    characters, messages = room(conversation, pad)
    player = Narrow(conversation, seed, unlike=True, pad=pad, like=like)
    player.characters = characters if by != "messages" else player.characters
    player.messages = messages if by != "characters" else player.messages
    result, events, model = asyncio.run(followed(player))
    assert result.outcome is not None
    cuts = cuts_of(result)
    summed_up = [one for one in player.refused if "You keep the memory" in one[0]["content"]]
    assert len(cuts) == len(player.refused) - len(summed_up)
    told = [event.text for event in events if isinstance(event, Notice)]
    assert not Counter(fields_of(cut).problem for cut in cuts) - Counter(told)
    shortened = [event.id for event in events if isinstance(event, HistoryShortened)]
    made = [place_of(one) for one in result.messages if kind_of(one) == "summary"]
    assert shortened == made
    assert {*made} >= {place_of(cut) for cut in cuts}
    # A refused prompt is not sent again.
    assert all(one not in player.refused[:place] for place, one in enumerate(player.refused))
    for call in model.calls:
        assert call.messages[0].type == "system"
        well_formed(call.messages)
        if is_asked_as_speaker(conversation, call.messages):
            assert player.takes(call.prompt) or call.prompt in player.refused
