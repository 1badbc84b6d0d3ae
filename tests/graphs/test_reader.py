"""What is read of a log that grows is the same as what is read of the whole log at once.

The counts are held to plain functions over the whole log, the views and what a context policy
keeps to a reader that has read nothing before.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from random import Random

from hypothesis import given, settings, strategies as st
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, RemoveMessage

from drawn.odd_logs import odd_conversation, odd_line
from duologue.graphs.log.channels import GrowingLog, log_of
from duologue.graphs.log.kinds import Kind
from duologue.graphs.log.messages import About, Failure, Flaw, Source, line, said
from duologue.graphs.log.reducer import append
from duologue.graphs.log.viewpoint import copied, viewpoint
from duologue.graphs.rules.context.shortening import Around
from duologue.graphs.rules.reader import Reader
from duologue.graphs.spec.conversation import Conversation
from duologue.graphs.text.farewells import is_farewell
from duologue.graphs.text.wording import (
    is_blank,
    is_equal,
    is_same,
    is_same_move,
    is_short,
)
from duologue.nodes.step.running import RunningSessions

Read = list[tuple[BaseMessage, About]]

AROUND = [Around(100), Around(100, 5), Around(120, 0, 90)]
FREE = (Source.HUMAN, Source.TEXT, Source.CODE, Source.TOOL)


def in_a_row(found: Iterable[bool]) -> int:
    return sum(takewhile(bool, found))


def counts(conversation: Conversation, log: Sequence[BaseMessage]) -> dict[str, int]:
    """What guards count in a log, but for zeros; R10: since it ended, where it has gone on."""
    read = [(message, line(message)) for message in log]
    ends = [place for place, (_, about) in enumerate(read) if about.kind is Kind.ENDED]
    read = read[ends[-1] + 1 :] if ends else read
    heard = [(message, about) for message, about in read if about.counts]
    turn = list(takewhile(lambda one: not one[1].ends_turn, reversed(read)))
    failures = [about.failure for _, about in turn if about.kind is Kind.TOOL_RESULT]
    calls = [
        (call["name"], call["args"])
        for message, about in turn
        if about.kind is Kind.TOOL_CALLS and isinstance(message, AIMessage)
        for call in reversed([*message.tool_calls, *message.invalid_tool_calls])
    ]
    verdicts = [about.verdict for _, about in reversed(read) if about.verdict is not None]
    flips = Counter(about.speaker for _, about in heard if about.flaw is Flaw.ROLE_FLIP)
    by_models = [(one, about.source is not Source.HUMAN) for one, about in reversed(heard)]
    found = {
        "call_errors": failures.count(Failure.CALL),
        "tool_errors": failures.count(Failure.TOOL),
        "unreadable_verdicts": in_a_row(not verdict.readable for verdict in verdicts),
        "role_flips": max(flips.values(), default=0),
        "blank_replies": in_a_row(model and is_blank(one.text) for one, model in by_models),
        "same_replies": same_replies(heard),
        "farewells": in_a_row(
            about.source is not Source.HUMAN and is_farewell(one.text, ("Ann", "Bob", "Cid"))
            for one, about in reversed(closing(heard))
        ),
        "standstill": standstill(conversation, heard),
        "same_tool_calls": in_a_row(call == calls[0] for call in calls),
    }
    return {reason: count for reason, count in found.items() if count}


def closing(heard: Read) -> Read:
    """R7: the messages that may close a conversation: none while a question is open."""
    found, asker = [], None
    for message, about in heard:
        asks = "?" in message.text
        asker = about.speaker if asks or asker == about.speaker else asker
        if asker in (None, about.speaker):
            found.append((message, about))
        if not asks and asker == about.speaker:
            asker = None
    return found


def standstill(conversation: Conversation, heard: Read) -> int:
    """R7: rounds of sentences in which nobody says anything new since a person has spoken."""
    people = [place for place, (_, about) in enumerate(heard) if about.source is Source.HUMAN]
    since = heard[people[-1] + 1 :] if people else heard
    found = 0
    for length in (1, 2, 3):
        weight = 0
        for place in range(len(since) - 1, -1, -1):
            message, about = since[place]
            own = [one.text for one, its in since[:place] if its.speaker == about.speaker]
            before = own[-length] if len(own) >= length else None
            if before is None or not is_equal(message.text, before):
                break
            asked = any("?" in one.text for one, _ in since[max(place - 1, 0) : place + 1])
            weight += (1 if asked else 2) if is_short(message.text) else 6
        found = max(found, weight // (6 * len(conversation.speakers)))
    if since and not is_short(since[-1][0].text) and since[-1][1].source not in FREE:
        latest, who = since[-1]
        times = sum(
            is_equal(one.text, latest.text)
            for one, about in since
            if about.speaker == who.speaker and about.source not in FREE
        )
        found = max(found, times // 6)
    return found


def same_replies(heard: Read) -> int:
    if not heard or heard[-1][1].source in FREE:
        return 0
    latest, who = heard[-1]
    return 1 + sum(
        is_same(message.text, latest.text) and (place == 0 or is_alike(heard[place - 1], heard[-2]))
        for place, (message, about) in enumerate(heard[:-1])
        if about.speaker == who.speaker and about.source not in FREE
    )


def is_alike(before: tuple[BaseMessage, About], now: tuple[BaseMessage, About]) -> bool:
    asked_again = now[1].source is Source.HUMAN and is_equal(before[0].text, now[0].text)
    return not asked_again and is_same_move(before[0].text, now[0].text)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32))
def test_a_log_that_grows_is_read_as_the_whole_log_is(seed: int) -> None:
    random = Random(seed)  # noqa: S311  # a drawn seed, nothing secret
    conversation = odd_conversation(random)
    reader, channels = Reader(conversation), GrowingLog()
    log: list[AnyMessage] = []
    for _ in range(random.randint(5, 40)):
        log = append(log, [odd_line(random, conversation.names, log)])
        if random.random() < 0.05:
            log = append(log, [RemoveMessage(id=str(random.choice(log).id))])
        state = {"messages": [one for one in log if line(one).kind.row.is_spoken]}
        state["unspoken"] = [one for one in log if one not in state["messages"]]
        assert channels.of(state) == log_of(state)
        # What a model is asked with may not come into the log, and is read all the same.
        tried = [*log, odd_line(random, conversation.names, log)]
        for one in (tried, log) if random.random() < 0.2 else (log,):
            check(conversation, reader, one, random.choice(AROUND))


FEW = ("OK.", "Thank you!", "Is it done?", "We go on with the beans.", "We go on with 2 beans.")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_r7_what_never_moves_is_counted_as_by_a_look_at_the_whole_log(data: st.DataObject) -> None:
    """Logs of few texts, in which most come again."""
    names = ("Ann", "Bob", "Cid")[: data.draw(st.integers(2, 3))]
    speakers = [{"name": name} for name in names]
    conversation = Conversation.model_validate({"task": "Talk.", "speakers": speakers})
    period, reader = data.draw(st.integers(1, 3)), Reader(conversation)
    script = {
        name: data.draw(st.lists(st.sampled_from(FEW), min_size=period, max_size=period))
        for name in names
    }
    log: list[AnyMessage] = []
    for place in range(data.draw(st.integers(10, 60))):
        name = names[place % len(names)]
        text, source = script[name][place // len(names) % period], Source.MODEL
        if data.draw(st.integers(0, 19)) == 7:
            text = data.draw(st.sampled_from(FEW))
            source = data.draw(st.sampled_from((Source.MODEL, Source.TEXT, Source.HUMAN)))
        about = About(kind=Kind.SPEECH, speaker=name, source=source)
        log = append(log, [said(place, text, about)])
        assert reader.facts(log).counts == counts(conversation, log)


def check(
    conversation: Conversation, reader: Reader, log: Sequence[BaseMessage], around: Around
) -> None:
    new = Reader(conversation)
    facts = reader.facts(log)
    assert facts == new.facts(log)
    assert facts.counts == counts(conversation, log)
    for name in conversation.names:
        history, its = reader.history(name), new.history(name)
        kept = history.shortened(log, around)
        assert kept == its.shortened(log, around)
        assert history.to_summarise(log, around) == its.to_summarise(log, around)
        assert history.halved(log, around) == its.halved(log, around)
        assert history.last_summary(log) == its.last_summary(log)
        view = reader.view(kept.lines, name, "Be brief.")
        assert view == new.view(kept.lines, name, "Be brief.")
        assert viewpoint(conversation, log, name) == reader.view(
            history.remembered(log), name, None
        )


def test_who_is_given_a_copy_of_a_view_can_change_nothing() -> None:
    random = Random(7)  # noqa: S311  # nothing secret
    conversation = odd_conversation(random)
    log: list[AnyMessage] = []
    while len(log) < 60:
        log = append(log, [odd_line(random, conversation.names, log)])
    reader = Reader(conversation)
    for name in conversation.names:
        before = [one.model_dump() for one in reader.view(log, name, None)]
        for message in copied(reader.view(log, name, None)):
            message.content = "Spoilt."
            message.additional_kwargs["spoilt"] = message.response_metadata["spoilt"] = True
            if isinstance(message, AIMessage):
                for call in message.tool_calls:
                    call["args"]["a"] = "spoilt"
                message.tool_calls.clear()
        assert [one.model_dump() for one in reader.view(log, name, None)] == before


def test_threads_share_nothing_of_what_is_read() -> None:
    """One graph may run in several loops, and sessions without an id are all the same to it."""
    random = Random(7)  # noqa: S311  # nothing secret
    running, state = RunningSessions(), {"spec": odd_conversation(random).stored()}
    mine = running.of(None, state)
    with ThreadPoolExecutor(1) as thread:
        other = thread.submit(running.of, None, state).result()
    assert mine is running.of(None, state)
    assert mine is not other
