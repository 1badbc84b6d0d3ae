"""Long histories: the part of a log that each policy puts into a prompt, and the fixed part."""

from collections.abc import Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import strategies as st
from langchain_core.messages import AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call

from drawn.logs import Run, runs
from duologue.graphs import Conversation, LastMessages, RunningSummary, TokenBudget
from duologue.graphs.conversation.limits import least_limit
from duologue.graphs.log.viewpoint import viewpoint
from duologue.graphs.rules.history import History, PromptOverhead, Shortened
from duologue.graphs.speakers.call_settings import Context, KeepAll
from duologue.graphs.text.words import tokens_of, tokens_of_message
from support.cases import drawn_cases
from support.log import (
    PLACE,
    Stage,
    fields_of,
    kind_of,
    make_line,
    make_metadata,
    make_tool_line,
    place_of,
)
from support.prompts import PROMPTS, fill
from support.shape_help import well_formed

FIXED = PromptOverhead(30)
"""Tokens of a system prompt in these tests."""
LONG_NAME = "Bobby Lee the Younger"


def with_context(conversation: Conversation, name: str, context: Context) -> Conversation:
    """Return the conversation with this policy for one speaker."""
    speakers = tuple(
        speaker.model_copy(update={"context": context}) if speaker.name == name else speaker
        for speaker in conversation.speakers
    )
    return conversation.model_copy(update={"speakers": speakers})


@st.composite
def policies(draw: st.DrawFn, run: Run, name: str) -> Context:
    kind = draw(st.sampled_from(["all", "last", "tokens", "summary"]))
    if kind == "all":
        return KeepAll()
    if kind == "last":
        return LastMessages(limit=draw(st.integers(1, 12)))
    least = least_limit(run.conversation, run.conversation.speaker(name))
    limit = least + draw(st.integers(0, 300))
    if kind == "tokens":
        return TokenBudget(limit=limit)
    return RunningSummary(limit=limit, words=draw(st.integers(1, 20)))


@st.composite
def shaped(draw: st.DrawFn) -> tuple[Run, Conversation, str]:
    run = draw(runs())
    name = draw(st.sampled_from(run.conversation.names))
    return run, with_context(run.conversation, name, draw(policies(run, name))), name


def begins_at(run: Run, since: str | None) -> int:
    """Return the index in the log of the first kept message."""
    ids = [place_of(message) for message in run.log]
    return 0 if since is None else ids.index(since)


def newest_turn(run: Run, length: int, name: str) -> int:
    """Return the index after the speaker's last finished turn, also among remembered messages."""
    read = [fields_of(message) for message in run.log[:length]]
    turns = ("speech", "remembered")
    places = [place for place, it in enumerate(read) if it.kind in turns and it.speaker == name]
    return places[-1] + 1 if places else 0


def is_new(message: BaseMessage, name: str) -> bool:
    """Return whether the message is heard and requests a new turn or a step of it."""
    is_reflected = kind_of(message) in ("judge_question", "reflection")
    is_blank = kind_of(message) == "tool_calls" and not message.text
    return not is_reflected and not (is_blank and fields_of(message).speaker != name)


def cut(conversation: Conversation, log: Sequence[BaseMessage], name: str) -> Shortened:
    return History(conversation, name).shorten(log, FIXED)


@drawn_cases(4, 60, drawn=shaped())
def test_what_is_left_is_pinned_or_stands_behind_one_cut(
    drawn: tuple[Run, Conversation, str],
) -> None:
    run, conversation, name = drawn
    before = deepcopy(run.log)
    for length in [*run.prompts.get(name, []), len(run.log)]:
        log = run.log[:length]
        lines, since = cut(conversation, log, name)
        place = begins_at(run, since)
        pinned = [run.log[it] for it in run.pinned.get(name, []) if it < place]
        assert lines == [*pinned, *log[place:]]
        newest = [*log[newest_turn(run, length, name) :]]
        heard = [one for one in newest if fields_of(one).is_heard_by(name) and is_new(one, name)]
        assert all(one in lines for one in heard)
        assert not log or log[-1] in lines
    assert run.log == before


@drawn_cases(4, 60, drawn=shaped())
def test_every_prompt_of_a_shortened_log_can_be_sent_and_ends_in_what_was_last_heard(
    drawn: tuple[Run, Conversation, str],
) -> None:
    """U5: shortened prompts are valid and end with the last heard message."""
    run, conversation, name = drawn
    for length in run.prompts.get(name, []):
        lines, since = cut(conversation, run.log[:length], name)
        view = viewpoint(conversation, lines, name)
        well_formed(view)
        whole = viewpoint(conversation, run.log[:length], name)
        if whole:
            assert type(view[-1]) is type(whole[-1])
            assert view[-1].text.endswith(whole[-1].text.rpartition("\n\n")[2])
        first = next(iter(view), None)
        assert since is None or isinstance(first, HumanMessage)


@drawn_cases(4, 60, drawn=shaped())
def test_a_cut_stays_where_it_is_however_long_the_log_gets_and_only_moves_on(
    drawn: tuple[Run, Conversation, str],
) -> None:
    """Servers cache prefixes: until the cut moves, a prompt and its reply begin the next prompt."""
    run, conversation, name = drawn
    asked = run.prompts.get(name, [])
    found = [cut(conversation, run.log[:length], name) for length in asked]
    places = [begins_at(run, one.since) for one in found]
    assert places == sorted(places)
    for (length, one), (_, then) in pairwise(zip(asked, found, strict=True)):
        if one.since != then.since:
            continue
        prompt = viewpoint(conversation, one.lines, name)
        replied = viewpoint(conversation, [*one.lines, *run.log[length : length + 1]], name)
        following = viewpoint(conversation, then.lines, name)
        assert following[: len(prompt)] == prompt
        assert kind_of(run.log[length]) == "draft" or replied[: len(prompt)] == prompt


@drawn_cases(4, 60, drawn=shaped())
def test_a_prompt_keeps_within_its_limit_unless_what_must_stay_is_longer(
    drawn: tuple[Run, Conversation, str],
) -> None:
    run, conversation, name = drawn
    context = conversation.speaker(name).context
    if isinstance(context, KeepAll):
        return
    for length in run.prompts.get(name, []):
        log = run.log[:length]
        lines, since = cut(conversation, log, name)
        if History(conversation, name).halve(log, FIXED) is None:
            continue
        if isinstance(context, LastMessages):
            assert _talk(run, log[begins_at(run, since) :], name) <= context.limit
        else:
            view = viewpoint(conversation, lines, name)
            assert FIXED.front + sum(tokens_of_message(one) for one in view) <= context.limit


def _talk(run: Run, log: Sequence[BaseMessage], name: str) -> int:
    """Return the number of messages that a speaker said or heard."""
    pinned = {place_of(run.log[place]) for place in run.pinned.get(name, [])}
    mine = [
        one for one in log if (kind_of(one), fields_of(one).speaker) != ("opening_answer", name)
    ]
    return sum(
        kind_of(one) in ("speech", "opening_answer")
        or (kind_of(one) == "tool_calls" and bool(one.text))
        for one in mine
        if place_of(one) not in pinned
        and (fields_of(one).is_heard_by(name) or fields_of(one).speaker == name)
    )


def talk(*contexts: Context | str, **fields: Any) -> Conversation:
    """Return a conversation of Ann, Bob and so on, with a policy for each."""
    names = ("Ann", "Bob", "Cid")[: max(2, len(contexts))]
    given = [*contexts, *["all"] * (len(names) - len(contexts))]
    people = [{"name": name, "context": one} for name, one in zip(names, given, strict=True)]
    return Conversation.model_validate({"task": "Talk.", "speakers": people, **fields})


def spoken(conversation: Conversation, turns: int, text: str = "Yes. " * 12) -> list[AnyMessage]:
    """Return a log in which all speak in turn after an instruction to Ann to begin."""
    log: list[AnyMessage] = [make_line(0, "Please begin.", "instruction", audience=("Ann",))]
    for number in range(turns):
        name = conversation.names[number % len(conversation.names)]
        about = make_metadata("speech", speaker=name)
        log.append(make_line(len(log), f"{number}: {text}", about))
    return log


def summed_up(
    log: list[AnyMessage], since: str | None, text: str, name: str = "Ann"
) -> list[AnyMessage]:
    """Return the log with a summary for a speaker at its end."""
    about = make_metadata("summary", speaker=name, audience=(), since=since)
    return [*log, make_line(len(log), text, about)]


@pytest.mark.part(1)
@pytest.mark.parametrize("people", [2, 3])
@pytest.mark.parametrize(
    ("policy", "most_moves"),
    [
        (KeepAll(), 0),
        (LastMessages(limit=40), 20),
        (TokenBudget(limit=1500), 25),
        (RunningSummary(limit=2000, words=100), 25),
    ],
    ids=lambda it: getattr(it, "kind", ""),
)
def test_in_400_messages_a_cut_stays_put_for_many_turns(
    policy: Context, most_moves: int, people: int
) -> None:
    conversation = talk(policy, *["all"] * (people - 1))
    log = spoken(conversation, 400)
    kept = [
        cut(conversation, log[:length], "Ann")
        for length in range(1, len(log))
        if fields_of(log[length]).speaker == "Ann"
    ]
    places = list(dict.fromkeys(one.since for one in kept))
    assert len(places) - 1 <= most_moves
    assert (len(places) > 1) is (most_moves > 0)
    if isinstance(policy, LastMessages):
        assert max(len(one.lines) for one in kept) <= 40 + 1
        assert min(len(one.lines) for one in kept[100:]) >= 40 // 2 - people


def test_a_limit_of_one_message_keeps_what_was_said_since_the_last_turn() -> None:
    conversation = talk(LastMessages(limit=1), "all", "all")
    log = spoken(conversation, 9)
    assert [one.text[0] for one in cut(conversation, log, "Ann").lines] == ["7", "8"]


def test_what_has_the_rounds_begin_is_left_out_with_the_rest() -> None:
    """A cut also removes the message that starts the rounds, which would be wrong later."""
    conversation = talk(LastMessages(limit=2))
    lines, since = cut(conversation, spoken(conversation, 6), "Ann")
    assert "Please begin." not in [one.text for one in lines]
    assert since == "m0006"


def test_what_hooks_see_of_a_tool_in_an_opening_answer_does_not_begin_the_rounds() -> None:
    """L7, Y4: a tool's result before its hooks belongs to the opening, like its call."""
    conversation = talk(
        LastMessages(limit=1),
        speakers=[{"name": "Ann", "task": "Sell."}, {"name": "Bob", "task": "Buy."}],
        opening={"answers": True},
    )
    conversation = with_context(conversation, "Ann", LastMessages(limit=1))
    run = Run(conversation)
    opening: dict[str, Any] = {"audience": ("Ann",), "stage": Stage.OPENING}
    call = tool_call(name="add", args={}, id="c1")
    run.write("Sell.", "instruction", None, audience=("Ann",))
    run.write("", "tool_calls", "Ann", tool_calls=[call], **opening)
    run.log.append(make_tool_line(2, "4", speaker="Ann", call_id="c1", final=False))
    run.log.append(make_tool_line(3, "Four.", speaker="Ann", call_id="c1"))
    run.write("A boat for four.", "speech", "Ann", **opening)
    before = [*run.log]
    run.write("What Bob wants.", "opening_answer", "Bob", audience=("Ann",))
    for number in range(6):
        run.write(f"{number}", "speech", conversation.names[number % 2])
    lines, since = cut(conversation, run.log, "Ann")
    assert since == place_of(run.log[-1])
    assert [one for one in before if kind_of(one) != "unheard_result"] == lines[:-1]


def test_a_new_task_told_in_a_fork_is_never_left_out() -> None:
    conversation = talk(
        LastMessages(limit=2),
        speakers=[
            {"name": "Ann", "task": "Buy the boat.", "context": {"kind": "last", "limit": 2}},
            {"name": "Bob", "task": "Sell it."},
        ],
        opening={"answers": True},
    )
    log = spoken(conversation, 4)
    told = "From now on, your task is: Buy the boat."
    log.append(make_line(len(log), told, "instruction", audience=("Ann",)))
    for number in range(6):
        name = conversation.names[number % 2]
        log.append(make_line(len(log), "Well.", speaker=name))
    lines, since = cut(conversation, log, "Ann")
    assert lines[0].text == told
    assert since == place_of(log[-1])


def test_a_summary_stands_where_the_cut_is_and_is_told_to_its_speaker_alone() -> None:
    conversation = talk("all")
    log = summed_up(spoken(conversation, 6), "m0004", "They said yes.")
    lines, since = cut(conversation, log, "Ann")
    assert since == "m0004"
    told = fill(PROMPTS["summary_heading"], summary="They said yes.")
    assert [one.text for one in lines[:2]] == [told, log[4].text]
    view = viewpoint(conversation, lines, "Ann")
    well_formed(view)
    assert view[0].text.startswith(told)
    assert told not in "".join(one.text for one in viewpoint(conversation, lines, "Bob"))
    assert cut(conversation, log, "Bob") == Shortened([*log], None)


@pytest.mark.parametrize("policy", ["all", {"kind": "last", "limit": 9}], ids=str)
def test_the_newest_summary_counts_and_one_without_text_only_cuts(policy: Any) -> None:  # noqa: ANN401
    conversation = talk(policy)
    log = summed_up(spoken(conversation, 6), "m0002", "Old.")
    log = [*summed_up(log, "m0004", " "), make_line(8, "So.", speaker="Ann")]
    lines, since = cut(conversation, log, "Ann")
    assert since == "m0004"
    assert lines == log[4:]
    newest = History(conversation, "Ann").last_summary(log)
    assert newest is not None
    assert place_of(newest) == "m0008" or newest.text == " "
    assert History(conversation, "Bob").last_summary(log) is None


def test_a_summary_of_what_is_forgotten_is_forgotten_too() -> None:
    conversation = talk("all")
    log = summed_up(spoken(conversation, 4), "m0003", "Old.")
    log.append(make_line(6, "", "memory_reset", speaker="Ann", audience=(), since="m0004"))
    assert History(conversation, "Ann").last_summary(log) is None
    newest = History(conversation, "Ann").last_summary(summed_up(log, "m0004", "New."))
    assert newest is not None
    assert newest.text == "New."


def test_after_a_summary_the_cut_moves_on_by_the_policy() -> None:
    conversation = talk(LastMessages(limit=4))
    log = summed_up(spoken(conversation, 4), "m0003", "In short.")
    longer = [
        *log,
        *(make_line(len(log) + n, "More.", fields_of(log[1 + n % 2])) for n in range(6)),
    ]
    lines, since = cut(conversation, longer, "Ann")
    assert lines[0].text == fill(PROMPTS["summary_heading"], summary="In short.")
    assert place_of(lines[1]) == since
    assert since is not None
    assert since > "m0005"


@drawn_cases(4, 60, drawn=shaped(), data=st.data())
def test_a_cut_for_good_leaves_a_prompt_that_can_be_sent_and_at_most_half(
    drawn: tuple[Run, Conversation, str], data: st.DataObject
) -> None:
    run, conversation, name = drawn
    asked = run.prompts.get(name, [])
    if not asked:
        return
    log = run.log[: data.draw(st.sampled_from(asked))]
    kept, _ = cut(conversation, log, name)
    since = History(conversation, name).halve(log, FIXED)
    if since is None:
        return
    again = summed_up(log, since, "", name)
    lines, found = cut(conversation, again, name)
    assert found == since
    well_formed(viewpoint(conversation, lines, name))
    pinned = {place_of(run.log[place]) for place in run.pinned.get(name, [])}
    before, after = (_tokens(conversation, it, name, pinned) for it in (kept, lines))
    assert after < before
    is_newest = History(conversation, name).halve(again, FIXED) is None
    assert is_newest or after <= before // 2


def _tokens(
    conversation: Conversation, lines: Sequence[BaseMessage], name: str, pinned: set[str]
) -> int:
    """Return the tokens of the messages in a speaker's view, without the pinned ones."""
    tokens = 0
    for one in lines:
        who = fields_of(one).speaker
        labelled = conversation.hears_labels(conversation.speaker(name))
        label = f"{who}: " if labelled and who not in (None, name) else ""
        if kind_of(one) == "remembered" and who is None:
            label = conversation.mark_instruction(conversation.speaker(name), "")
        label += "" if one.text.strip() else "(empty message)"
        tokens += (
            tokens_of_message(one, label) if _seen(one, name) and place_of(one) not in pinned else 0
        )
    return tokens


def test_halving_ends_at_the_newest_turn() -> None:
    conversation = talk("all")
    log = spoken(conversation, 16)
    cuts: list[str] = []
    while (since := History(conversation, "Ann").halve(log, FIXED)) is not None:
        cuts.append(since)
        log = summed_up(log, since, "")
    assert cuts == ["m0010", "m0014", "m0016"]
    assert [place_of(one) for one in cut(conversation, log, "Ann").lines][:1] == ["m0016"]


def test_before_anyone_has_finished_a_turn_nothing_can_be_left_out() -> None:
    conversation = talk("all")
    assert History(conversation, "Ann").halve([], FIXED) is None
    assert History(conversation, "Ann").halve(spoken(conversation, 0), FIXED) is None


@drawn_cases(4, 60, run=runs(most_turns=20), words=st.integers(1, 15), above=st.integers(0, 150))
def test_whatever_is_left_out_is_summed_up_once_and_in_order(
    run: Run, words: int, above: int
) -> None:
    name = run.conversation.names[0]
    least = least_limit(run.conversation, run.conversation.speaker(name))
    policy = RunningSummary(limit=least + 2 * words + above, words=words)
    conversation = with_context(run.conversation, name, policy)
    pinned = {place_of(run.log[place]) for place in run.pinned.get(name, [])}
    log: list[AnyMessage] = []
    summarised: list[str | None] = []
    for length, message in enumerate(run.log):
        if length in run.prompts.get(name, []):
            found = History(conversation, name).to_summarise(log, FIXED)
            if found is not None:
                lines, since = found
                assert cut(conversation, log, name).since == since
                summarised += [place_of(one) for one in lines]
                log = summed_up(log, since, "w " * words, name)
                log[-1].id = f"s{length}"
                # Identified by its id, because the drawn log stores its index.
                del log[-1].additional_kwargs[PLACE]
                assert History(conversation, name).to_summarise(log, FIXED) is None
        log.append(message)
    newest = History(conversation, name).last_summary(log)
    kept_from = None if newest is None else fields_of(newest).since
    before = [] if kept_from is None else log[: [place_of(one) for one in log].index(kept_from)]
    seen = [place_of(one) for one in before if _seen(one, name)]
    assert summarised == [one for one in seen if one not in pinned]


def _seen(message: BaseMessage, name: str) -> bool:
    about = fields_of(message)
    if about.kind == "summary" or (about.kind, about.speaker) == ("opening_answer", name):
        return False
    if isinstance(message, ToolMessage) or about.speaker == name:
        is_heard = about.kind != "reflection" or about.is_heard_by(name)
        return about.speaker == name and about.kind != "draft" and bool(is_heard)
    return bool(about.is_heard_by(name)) and not (about.kind == "tool_calls" and not message.text)


@pytest.mark.parametrize("policy", ["all", {"kind": "last", "limit": 4}], ids=str)
def test_the_other_policies_sum_nothing_up(policy: Any) -> None:  # noqa: ANN401
    conversation = talk(policy)
    assert History(conversation, "Ann").to_summarise(spoken(conversation, 50), FIXED) is None


def test_what_a_hook_made_of_a_line_weighs_in_its_place() -> None:
    """L7: a hook's version of a message replaces it in the token count."""
    conversation = talk(TokenBudget(limit=400))
    log: list[AnyMessage] = [make_line(0, "Go.", "instruction", audience=("Ann",))]
    for number in range(10):
        log.append(make_line(len(log), "No.", speaker="Ann"))
        log.append(make_line(len(log), "Yes. " * 100, speaker="Bob"))
        about = make_metadata(
            "hook_version", audience=("Ann",), instead_of=(f"m{len(log) - 1:04d}",)
        )
        log.append(make_line(len(log), f"{number}", about))
    assert cut(conversation, log, "Ann").since is None
    unhooked = [one for one in log if kind_of(one) != "hook_version"]
    assert cut(conversation, unhooked, "Ann").since is not None


def test_a_hooks_version_of_what_is_never_left_out_is_never_left_out() -> None:
    """L7: a hook may change a message from before the rounds at any later turn."""
    run = Run(talk(LastMessages(limit=2)))
    for text in ("You sell a boat.", "Please begin."):
        run.write(text, "instruction", None, audience=("Ann",))
    run.write("Hello.", "speech", "Ann")
    changed = {"audience": ("Ann",), "instead_of": ("m0000",)}
    run.write("You sell two boats.", "hook_version", None, **changed)
    for number in range(6):
        run.write(f"{number}", "speech", ("Bob", "Ann")[number % 2])
    kept = [one.text for one in cut(run.conversation, run.log, "Ann").lines]
    assert "You sell two boats." in kept
    assert "Hello." not in kept


def test_a_turn_is_not_parted_from_its_reflection_or_its_tools() -> None:
    """Y10, Y18: a kept question belongs to the speech before it, a result to its call."""
    conversation = talk(LastMessages(limit=2))
    call = tool_call(name="add", args={}, id="c1")
    told = make_metadata("instruction", audience=("Ann",))
    log = [
        *spoken(conversation, 4),
        make_line(5, "", "tool_calls", speaker="Ann", tool_calls=[call]),
        make_tool_line(6, "4", speaker="Ann", call_id="c1"),
        make_line(7, "By the way, hurry.", told),
        make_line(8, "Four.", speaker="Ann"),
        make_line(9, "What is left?", "judge_question", audience=("Ann",)),
        make_line(10, "All.", "reflection", speaker="Ann", audience=("Ann",)),
    ]
    assert cut(conversation, log[:8], "Ann").since == "m0004"
    for length in (9, 10, 11):
        assert History(conversation, "Ann").halve(log[:length], FIXED) is None
    log.append(make_line(11, "So?", speaker="Bob"))
    assert cut(conversation, log, "Ann").since == "m0011"


def test_what_stands_for_silence_is_counted() -> None:
    conversation = talk(TokenBudget(limit=200))
    log = spoken(conversation, 0)
    for number in range(60):
        name = conversation.names[number % 2]
        log.append(make_line(len(log), " ", speaker=name))
        view = viewpoint(conversation, cut(conversation, log, "Ann").lines, "Ann")
        assert FIXED.front + sum(tokens_of_message(one) for one in view) <= 200


@pytest.mark.parametrize(
    ("ann", "each", "said"),
    [
        ({"prefixes": {LONG_NAME: "Now hear this: " * 5}}, 0, {}),
        ({"labels": True}, 0, {}),
        ({}, 40, {}),
        ({}, 0, {"source": "handoff", "handed_to": (LONG_NAME,)}),
        ({}, 0, {"handed_to": (LONG_NAME,)}),
    ],
    ids=("prefixes", "labels", "a reminder", "a handoff beside tools", "a handoff"),
)
def test_what_the_prompt_adds_to_a_message_is_counted(
    ann: dict[str, Any], each: int, said: dict[str, Any]
) -> None:
    around = PromptOverhead(30, each)
    people = [{"name": "Ann", "context": TokenBudget(limit=500), **ann}, {"name": LONG_NAME}]
    conversation = talk(speakers=people, turn_order="handoff")
    log = spoken(conversation, 0)
    for _ in range(30):
        log.append(make_line(len(log), "Well. " * 12, speaker="Ann", **said))
        log.append(make_line(len(log), "Yes.", speaker=LONG_NAME))
        lines = History(conversation, "Ann").shorten(log, around).lines
        heard = sum(fields_of(one).speaker == LONG_NAME for one in lines)
        view = viewpoint(conversation, lines, "Ann")
        assert around.front + each * heard + sum(map(tokens_of_message, view)) <= 500


@pytest.mark.part(6)
@pytest.mark.parametrize("limit", range(500, 900, 20))
def test_one_summary_is_enough_however_much_was_said_before_it_is_made(limit: int) -> None:
    conversation = talk(RunningSummary(limit=limit, words=100), "all", "all")
    log: list[AnyMessage] = []
    for number, message in enumerate(spoken(conversation, 60)):
        if fields_of(message).speaker == "Ann":
            found = History(conversation, "Ann").to_summarise(log, FIXED)
            if found is not None:
                log = summed_up(log, found[1], "words " * 100)
                log[-1].id = f"s{len(log)}"
                # Identified by its id, because the drawn log stores its index.
                del log[-1].additional_kwargs[PLACE]
                assert History(conversation, "Ann").to_summarise(log, FIXED) is None
        # Long and short messages, so that any of them may reach the limit.
        about = {"content": "Yes. " * (3 + number * 17 % 60)}
        log.append(message.model_copy(update=about))
    assert History(conversation, "Ann").last_summary(log) is not None


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("", 0, 0),
        ("The quick brown fox jumps over the lazy dog.", 10, 20),
        ("今天天气很好，我们去公园散步吧。", 12, 24),  # noqa: RUF001
        ("🎲", 1, 3),
    ],
)
def test_tokens_are_estimated_for_any_script(text: str, least: int, most: int) -> None:
    assert least <= tokens_of(text) <= most
