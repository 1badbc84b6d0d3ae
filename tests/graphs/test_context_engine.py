"""Long histories in the whole engine: every prompt that a model gets, by each policy.

Row 5 of the last section of FEATURES.md: names with spaces, alternation and overflow are handled.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from drawn.player import MENDED, Narrow, Player, cuts_of, followed
from drawn.talks import long_talks
from duologue.graphs import Result
from duologue.graphs.events import HistoryShortened, Notice
from duologue.graphs.log.messages import metadata, place_of, says_something
from duologue.graphs.log.metadata import Speech, Summary
from duologue.graphs.speakers.context import KeepAll, LastMessages
from duologue.graphs.spec.conversation import Conversation
from duologue.graphs.text.tokens import tokens_of_message
from duologue.nodes.prompts import judging, summaries
from duologue.nodes.prompts.template import fill_template
from duologue.nodes.testing import Prompt
from support.cases import drawn_cases
from support.fields import fields_of

QUESTIONS = {
    asked: question
    for question in (judging.JUDGE_OWN_TASK, judging.LIST_OBJECTIVES_LEFT, judging.IS_TASK_COMPLETE)
    for asked in (question, fill_template(judging.RETRY_FORMAT, question=question))
}
"""What a speaker is asked about its own task, by how it is asked: also once more (R17)."""


@dataclass
class Asked:
    """A call of a speaker's model, or one that judges its own task."""

    name: str
    messages: list[BaseMessage]
    """All that was sent."""
    view: list[BaseMessage]
    """What the speaker saw, without what was asked behind it."""
    judges: bool
    mends: bool


def asked_of_speakers(
    conversation: Conversation, calls: Sequence[Sequence[BaseMessage]]
) -> Iterator[Asked]:
    """The calls in which a speaker is asked, and not who takes no part or sums up."""
    for messages in calls:
        system, *_, last = messages
        name = next(
            (it for it in conversation.names if system.text.startswith(f"You are {it},")), None
        )
        if name is None:
            continue
        view, mends = list(messages), last.text.endswith(MENDED)
        question = QUESTIONS.get(last.text)
        judges = question is not None
        if judges:
            view.pop()
        if (
            question == judging.IS_TASK_COMPLETE
            and not conversation.speaker(name).keep_self_reflection
        ):
            del view[-2:]
        if mends:
            # Drafts are blank here, so the request stands alone or behind what was heard.
            heard = view.pop().text.rpartition("\n\n")[0]
            view += [HumanMessage(heard)] if heard else []
        yield Asked(name, list(messages), view, judges=judges, mends=mends)


def can_be_sent(messages: Sequence[BaseMessage]) -> None:
    """User and assistant in turn, behind one system prompt, and no call without its results."""
    open_calls: list[str] = []
    before = ""
    for place, message in enumerate(messages):
        assert (message.type == "system") is (place == 0)
        assert message.text or (isinstance(message, AIMessage) and message.tool_calls)
        if isinstance(message, ToolMessage):
            assert message.tool_call_id == open_calls.pop(0)
        else:
            assert not open_calls
            assert message.type != before
        if isinstance(message, AIMessage):
            open_calls = [str(call["id"]) for call in message.tool_calls]
        before = message.type
    assert not open_calls


def said_aloud(result: Result) -> list[BaseMessage]:
    """What was said in the rounds; each is like no other."""
    read = [(message, metadata(message)) for message in result.messages]
    return [
        one for one, about in read if says_something(one, about) and about.is_aloud and one.text
    ]


def shown(view: Sequence[BaseMessage], said: Sequence[BaseMessage]) -> list[int]:
    """Which of the lines stand in a view."""
    whole = "\n".join(message.text for message in view)
    return [place for place, one in enumerate(said) if one.text.strip() in whole]


def is_within_limit(conversation: Conversation, asked: Asked, said: Sequence[BaseMessage]) -> bool:
    """Whether what a speaker saw is within its limit, or only its newest turn is left."""
    context = conversation.speaker(asked.name).context
    stands = [said[place] for place in shown(asked.view, said)]
    own = [
        one
        for one in stands
        if metadata(one).speaker == asked.name and isinstance(metadata(one), Speech)
    ]
    # A judge is asked about the turn that it has just finished.
    if isinstance(context, KeepAll) or len(own) <= asked.judges:
        return True
    if isinstance(context, LastMessages):
        return len(stands) <= context.limit
    return sum(map(tokens_of_message, asked.view)) <= context.limit


PADS = ("", " And so on.", " And so on, and so on, and so on and on." * 2)


@drawn_cases(4, 12, conversation=long_talks(), seed=st.integers(0, 999), pad=st.sampled_from(PADS))
def test_every_prompt_keeps_its_limit_alternates_and_begins_the_next_one_until_a_cut_moves(
    conversation: Conversation, seed: int, pad: str
) -> None:
    """Rows 5 and Y17, Y18, L3: by each policy, whoever else takes part."""
    result, _, model = asyncio.run(followed(Player(conversation, seed, unlike=True, pad=pad)))
    assert result.outcome is not None
    said = said_aloud(result)
    for call in model.calls:
        can_be_sent(call.messages)
    latest: dict[str, Asked] = {}
    for asked in asked_of_speakers(conversation, [call.messages for call in model.calls]):
        assert is_within_limit(conversation, asked, said)
        places = shown(asked.view, said)
        # One piece of what was said, which ends in the newest line.
        assert places == list(range(places[0], places[-1] + 1)) if places else True
        before = latest.get(asked.name)
        if before is not None:
            _goes_on(before, asked, said)
        if not asked.judges and not asked.mends:
            latest[asked.name] = asked


def _goes_on(before: Asked, asked: Asked, said: Sequence[BaseMessage]) -> None:
    """A prompt begins the next one, or its older part is left out."""
    old = [(one.type, one.text) for one in before.messages]
    new = [(one.type, one.text) for one in asked.view]
    if new[: len(old)] == old:
        follows = new[len(old) : len(old) + 1]
        assert not follows or follows[0][0] == "ai"
        return
    were, are = shown(before.view, said), shown(asked.view, said)
    # Before anything was said there may have been a request to begin, which is left out, too.
    assert not were or not are or are[0] > were[0] or summary(before) != summary(asked)


def summary(asked: Asked) -> str | None:
    """What a speaker is told of what is left out.

    Where tools give so much that a cut moves within a turn, that is summed up before the next one.
    """
    whole = "\n".join(message.text for message in asked.view)
    _, told, rest = whole.partition(summaries.SUMMARY_HEADING.partition("{")[0])
    return rest.partition("\n")[0] if told else None


# Models that take little.


def room(conversation: Conversation, pad: str) -> tuple[int, int]:
    """Characters and messages that what must stay never exceeds."""
    people, speech = len(conversation.names), 70 + len(pad)
    answers = (people * (speech + 40)) * conversation.opening.answers
    tools = 250 * any(speaker.tools for speaker in conversation.speakers)
    # What is always there and asked, then what is known, then the newest turn.
    characters = 900 + 2 * speech + answers + 3 * tools + (people + 1) * (speech + 30)
    return characters, 16 + 4 * people


@drawn_cases(
    4,
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
    """Row 5: the history is shortened for whoever is asked, and the stream and the log say so."""
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
    made = [place_of(one) for one in result.messages if isinstance(metadata(one), Summary)]
    assert shortened == made
    assert {*made} >= {place_of(cut) for cut in cuts}
    # What was refused once is not asked again.
    assert all(one not in player.refused[:place] for place, one in enumerate(player.refused))
    for call in model.calls:
        can_be_sent(call.messages)
    for asked in asked_of_speakers(conversation, [call.messages for call in model.calls]):
        assert player.takes(_as_sent(asked)) or _as_sent(asked) in player.refused


def _as_sent(asked: Asked) -> Prompt:
    from duologue.nodes.testing.script import as_prompt

    return as_prompt(asked.messages)
