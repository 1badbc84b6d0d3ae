"""Row R18: announcements of last words and, on request, of the rounds left, in one prompt each."""

import json
from itertools import pairwise
from typing import Any

import pytest
from langchain_core.tools import tool

from duologue.graphs import Conversation, Session, Speaker, group_solve, load_conversation
from duologue.nodes.testing import Line, Reply, ScriptedChatModel
from support.log import Stage, fields_of
from support.people_help import Played, call, calls, play
from support.prompts import PROMPTS, fill

LAST_MESSAGE = PROMPTS["last_message"]
ONE, ALL = (f"one_last_{which}_after_first_completion" for which in ("chat", "group_chat"))
DONE = {"objectives_left": [], "complete": True}
OPEN = {"objectives_left": ["more"], "complete": False}


def talk(mode: str = ONE, names: str = "Ann Bob", **end_chat: Any) -> Conversation:
    people = [{"name": name, "checks_completion": name == "Ann"} for name in names.split()]
    fields = {"task": "Plan.", "speakers": people, "end_chat": {"mode": mode} | end_chat}
    return load_conversation(fields)


def told(played: Played) -> list[bool]:
    """Return for each prompt whether only the last heard message ends with the announcement."""
    found = []
    for prompt in played.prompts:
        heard = [one["content"] for one in prompt if one["role"] == "user"]
        ends = [text.endswith(LAST_MESSAGE) for text in heard]
        assert json.dumps(prompt).count(LAST_MESSAGE) == sum(ends)
        found.append(any(ends))
    return found


def last_words(played: Played) -> list[str]:
    found = [fields_of(one) for one in played.result.messages]
    said = [about for about in found if about.kind == "speech"]
    return [about.speaker or "" for about in said if about.stage is Stage.LAST_WORDS]


def test_those_who_have_last_words_are_told_so() -> None:
    """R18: speakers with last words see the announcement."""
    played = play(talk(), ["It is done.", DONE, "Bye."])
    assert told(played) == [False, False, True]
    played = play(talk(ALL, "Ann Bob Cid"), ["Done.", DONE, "Bye.", "So long.", "The end."])
    assert last_words(played) == ["Bob", "Cid", "Ann"]
    assert told(played) == [False, False, True, True, True]


def test_it_stands_in_no_view_and_in_no_log() -> None:
    """R18: the announcement is in no view and in no log."""
    played = play(talk(ALL), ["Done.", DONE, "Bye.", "The end."])
    for name in ("Ann", "Bob"):
        assert not any(LAST_MESSAGE in one.text for one in played.result.viewpoint(name))
    assert not any(LAST_MESSAGE in one.text for one in played.result.messages)


def test_it_can_be_switched_off_and_modes_without_last_words_say_nothing() -> None:
    """R18: the announcement can be switched off; modes without last words have none."""
    quiet = play(talk(announce_last_words=False), ["It is done.", DONE, "Bye."])
    assert told(quiet) == [False, False, False]
    at_once = play(talk("end_chat_after_first_completion"), ["It is done.", DONE])
    assert told(at_once) == [False, False]


def test_within_the_turn_each_prompt_and_its_reply_begin_the_next() -> None:
    """R18, R3: requests for another reply, and results of tools, come after it."""

    @tool
    def look(at: str) -> str:
        """Look at something."""
        return f"{at} is fine."

    people = [
        {"name": "Ann", "checks_completion": True},
        {"name": "Bob", "on_length": "continue", "tools": ["look"]},
    ]
    conversation = load_conversation(
        {"task": "Plan.", "speakers": people, "end_chat": {"mode": ONE}}
    )
    script: list[Line] = [
        "Done.",
        DONE,
        calls(call("look", at="it")),
        Reply(text="By", finish_reason="length"),
        "e.",
    ]
    played = play(conversation, script, tools=[look])
    assert told(played) == [False, False, True, True, True]
    assert played.transcript[-1] == ("Bob", "Bye.")
    for before, then in pairwise(played.prompts[2:]):
        assert then[: len(before)] == before
    rejected = play(talk(), ["It is done.", DONE, "Ann: I am Ann.", "Bye."])
    assert told(rejected) == [False, False, True, True]
    assert rejected.prompts[3][: len(rejected.prompts[2])] == rejected.prompts[2]


def test_a_group_solve_says_nothing_unless_told_to() -> None:
    """R18, Y13, Y14: a group solve announces last words only on request."""
    people = [
        Speaker(name="Ann", task="Keep.", checks_completion=True),
        Speaker(name="Bob", task="Guess."),
    ]
    script: list[Line] = ["a", "b", "c", "d", DONE, "Bye."]
    assert not any(told(play(group_solve(people, end_chat={"mode": ONE}), script)))
    loud = group_solve(people, end_chat={"mode": ONE, "announce_last_words": True})
    assert told(play(loud, script))[-1] is True


def rounds_left(count: int) -> str:
    return fill(PROMPTS["moderator_label"], text=fill(PROMPTS["rounds_left"], count=count))


def test_on_request_each_is_told_how_many_rounds_are_left() -> None:
    """R18: on request, each prompt shows the number of rounds left."""
    cap: dict[str, Any] = {"max_iterations": 3, "tell_rounds_left": True}
    played = play(talk("max_iterations_only", **cap), ["a", "b", "c", "d", "e", "f"])
    ends = [prompt[-1]["content"].rsplit("\n\n", 1)[-1] for prompt in played.prompts]
    assert ends == [rounds_left(count) for count in (2, 2, 1, 1, 0, 0)]
    for name in ("Ann", "Bob"):
        assert not any("Rounds" in one.text for one in played.result.viewpoint(name))
    quiet = play(talk("max_iterations_only", max_iterations=3), ["a", "b", "c", "d", "e", "f"])
    assert "Rounds" not in json.dumps(quiet.prompts)


def test_what_stands_before_it_is_the_beginning_of_the_next_prompt() -> None:
    """R18: the variable part is at the end of a prompt, so that a server's cache applies."""
    cap: dict[str, Any] = {"max_iterations": 3, "tell_rounds_left": True}
    played = play(talk("max_iterations_only", **cap), ["a", "b", "c", "d", "e", "f"])
    for before, then in zip(played.prompts, played.prompts[2:], strict=False):
        said, told_last = before[-1]["content"].rsplit("\n\n", 1)
        assert told_last in {rounds_left(count) for count in range(3)}
        fixed = [*before[:-1], {**before[-1], "content": said}]
        assert then[: len(fixed)] == fixed


def test_in_last_words_no_rounds_are_left_to_tell() -> None:
    """R18: prompts for last words do not show the rounds left."""
    played = play(talk(ONE, tell_rounds_left=True), ["It is done.", DONE, "Bye."])
    assert told(played)[-1] is True
    assert "Rounds" not in json.dumps(played.prompts[-1])


def test_a_run_that_was_killed_tells_it_again() -> None:
    """R18: a run that was killed repeats the announcement."""
    store = "memory:killed-last-words"
    with pytest.raises(RuntimeError):
        play(talk(), ["Done.", DONE, RuntimeError("killed")], store=store)
    model = ScriptedChatModel(script=["Bye."])
    Session("s", store=store).resume(model=model)
    assert model.calls[0].prompt[-1]["content"].endswith(LAST_MESSAGE)
