"""An incremental reading of a growing log equals a reading of the whole log.

The counts are compared with plain functions over the whole log. The views, and the messages kept by
a context policy, are compared with a new reader.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
)

from drawn.odd_logs import odd_conversation, odd_line
from duologue.graphs import Conversation
from duologue.graphs.log.state import GrowingLog
from duologue.graphs.log.viewpoint import (
    SILENCE,
    copy_view,
    describe_news,
    order_messages,
    viewpoint,
)
from duologue.graphs.rules.history import PromptOverhead
from duologue.graphs.rules.log_counter import Reader
from duologue.nodes.turn.running_sessions import RunningSessions
from oracle.counting import counts
from support.cases import drawn_cases
from support.log import Source, append, fields_of, log_of, make_line, make_metadata
from support.shape_help import has_accepted_order, talk

AROUND = [PromptOverhead(100), PromptOverhead(100, 5), PromptOverhead(120, 0, 90)]


@drawn_cases(1, 15, seed=st.integers(0, 2**32))
def test_a_log_that_grows_is_read_as_the_whole_log_is(seed: int) -> None:
    random = Random(seed)  # noqa: S311  # a drawn seed, nothing secret
    conversation = odd_conversation(random)
    reader, channels = Reader(conversation), GrowingLog()
    log: list[AnyMessage] = []
    for _ in range(random.randint(5, 40)):
        log = append(log, [odd_line(random, conversation.names, log)])
        if random.random() < 0.05:
            log = append(log, [RemoveMessage(id=str(random.choice(log).id))])
        state = {"messages": [one for one in log if fields_of(one).is_spoken]}
        state["unspoken"] = [one for one in log if one not in state["messages"]]
        assert channels.read(state) == log_of(state)
        # Messages of a prompt need not be added to the log, but are read as well.
        tried = [*log, odd_line(random, conversation.names, log)]
        for one in (tried, log) if random.random() < 0.2 else (log,):
            check(conversation, reader, one, random.choice(AROUND))


FEW = ("OK.", "Thank you!", "Is it done?", "We go on with the beans.", "We go on with 2 beans.")


@drawn_cases(6, 60, data=st.data())
def test_r7_what_never_moves_is_counted_as_by_a_look_at_the_whole_log(data: st.DataObject) -> None:
    """R7: in logs with many repetitions, the incremental counts equal the full ones."""
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
        about = make_metadata("speech", speaker=name, source=source)
        log = append(log, [make_line(place, text, about)])
        assert reader.facts(log).counts == counts(conversation, log)


def check(
    conversation: Conversation, reader: Reader, log: Sequence[BaseMessage], around: PromptOverhead
) -> None:
    new = Reader(conversation)
    facts = reader.facts(log)
    assert facts == new.facts(log)
    assert facts.counts == counts(conversation, log)
    for name in conversation.names:
        history, its = reader.history(name), new.history(name)
        kept = history.shorten(log, around)
        assert kept == its.shorten(log, around)
        assert history.to_summarise(log, around) == its.to_summarise(log, around)
        assert history.halve(log, around) == its.halve(log, around)
        assert history.last_summary(log) == its.last_summary(log)
        for in_prompt in (True, False):
            view = reader.view(kept.lines, name, "Be brief.", in_prompt=in_prompt)
            assert view == new.view(kept.lines, name, "Be brief.", in_prompt=in_prompt)
            check_order(view)
        assert viewpoint(conversation, log, name) == reader.view(
            history.recall(log), name, None, in_prompt=False
        )


def check_order(view: Sequence[BaseMessage]) -> None:
    """R27: only blank messages are added, and the prompt with a question begins as before."""
    question = HumanMessage("What is left?")
    prompt = order_messages(view)
    has_accepted_order(prompt)
    assert [one for one in prompt if one.text != SILENCE] == [
        one for one in view if one.text != SILENCE
    ]
    assert order_messages(prompt) == prompt
    asked = order_messages([*prompt, question])
    has_accepted_order(asked)
    assert asked[-1].text.endswith(question.text)
    assert asked[: len(prompt) - 1] == prompt[:-1]


def test_a_hooks_version_takes_the_place_of_a_message_that_was_read_before() -> None:
    conversation = talk()
    log = [
        make_line(0, "You sell a boat.", "instruction", audience=("Ann",)),
        make_line(1, "Hello.", speaker="Ann"),
        make_line(2, "You sell a ship.", "hook_version", audience=("Ann",), instead_of=("m0000",)),
        make_line(3, "Ahoy.", speaker="Ann"),
    ]
    reader = Reader(conversation)
    views = [reader.view(log[:length], "Ann", None, in_prompt=False) for length in (2, 3, 4)]
    assert [[one.text for one in view] for view in views] == [
        ["You sell a boat.", "Hello."],
        ["Hello.", "You sell a ship."],
        ["Hello.", "You sell a ship.", "Ahoy."],
    ]


def test_what_is_new_to_a_speaker_is_the_same_behind_a_memory_that_was_loaded() -> None:
    """L2, L7: functions, hooks and people get the same new messages as the model."""
    loaded: dict[str, Any] = {"kind": "remembered", "audience": ("Ann",)}
    log = [make_line(0, "Hi.", speaker="Ann"), make_line(1, "News.", speaker="Bob")]
    assert describe_news(talk(), log, "Ann") == "News."
    log.append(make_line(2, "", "memory_reset", speaker="Ann", audience=(), since="m0001"))
    log += [make_line(3, "Old.", speaker="Bob", **loaded)]
    log += [make_line(4, "Mine.", speaker="Ann", **loaded)]
    assert describe_news(talk(), log, "Ann") == "News."


def test_who_is_given_a_copy_of_a_view_can_change_nothing() -> None:
    random = Random(7)  # noqa: S311  # nothing secret
    conversation = odd_conversation(random)
    log: list[AnyMessage] = []
    while len(log) < 60:
        log = append(log, [odd_line(random, conversation.names, log)])
    reader = Reader(conversation)
    for name in conversation.names:
        before = [one.model_dump() for one in reader.view(log, name, None, in_prompt=True)]
        for message in copy_view(reader.view(log, name, None, in_prompt=True)):
            message.content = "Spoilt."
            message.additional_kwargs["spoilt"] = message.response_metadata["spoilt"] = True
            if isinstance(message, AIMessage):
                for call in message.tool_calls:
                    call["args"]["a"] = "spoilt"
                message.tool_calls.clear()
        assert [one.model_dump() for one in reader.view(log, name, None, in_prompt=True)] == before


def test_threads_share_nothing_of_what_is_read() -> None:
    """Threads share no state, because a graph can't distinguish sessions without an id."""
    random = Random(7)  # noqa: S311  # nothing secret
    running, state = RunningSessions(), {"spec": odd_conversation(random).stored()}
    mine = running.find(None, state)
    with ThreadPoolExecutor(1) as thread:
        other = thread.submit(running.find, None, state).result()
    assert mine is running.find(None, state)
    assert mine is not other
