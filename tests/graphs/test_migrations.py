"""Sessions that the release before stored are listed, shown, resumed and forked by this one."""

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AnyMessage

from duologue.graphs import (
    Conversation,
    Reason,
    Result,
    fork,
    get_session,
    list_sessions,
    resume,
)
from duologue.graphs.build import build_graph
from duologue.graphs.cli.show import show_session
from duologue.graphs.cli.terminal.follow_up import FollowUp
from duologue.graphs.log.messages import Kind, Line, result, said
from duologue.graphs.spec.ends import DoneToken
from duologue.graphs.spec.fields import SPEC_VERSION
from duologue.graphs.spec.judges import Verdict
from duologue.graphs.store.address import open_store
from duologue.nodes.prompts import judging, speaking
from duologue.nodes.testing import (
    Line as Spoken,
    Prompt,
    Reply,
    ScriptedChatModel,
    ScriptedToolCall,
)

from .fork_help import FUNCTIONS

SPEC: dict[str, Any] = {
    "version": 1,
    "task": "Plan a garden",
    "speakers": [
        {"name": "Ann", "tools": ["weather"], "stops_chat": True},
        {"name": "Ben", "format": {"lines": ["Solution:"]}},
    ],
    "end_chat": {
        "mode": "end_chat_after_first_completion",
        "max_iterations": 2,
        "done_token": {"token": "DONE", "by": "Ben"},
        "max_role_flips": 3,
    },
    "judge": {"form": "two_questions"},
}
"""As the release before wrote it, with all that has moved since."""

AT_FIRST: dict[str, Any] = {
    "event": "started",
    "stage": "rounds",
    "speaker": None,
    "turns": 0,
    "opened": 0,
    "completed": [],
    "owed": [],
    "said_done": False,
    "role_flips": {},
    "tool_rounds": 0,
    "asked_again": False,
}
"""A position as the release before wrote it, whole."""


def old_log() -> list[AnyMessage]:
    """What was said up to the done token, without the stages and flaws that lines have now."""
    call = {"name": "weather", "args": {"day": "Monday"}, "id": "a", "type": "tool_call"}
    aside = Line(kind=Kind.QUESTION, audience=())
    answer = Line(kind=Kind.REFLECTION, speaker="Ann", audience=())
    no = Verdict(speaker="Ann", complete=False, objectives_left=("Beans.",))
    draft = Line(kind=Kind.DRAFT, speaker="Ben", audience=(), problem="The mark is missing.")
    return [
        said(0, speaking.BEGIN, Line(kind=Kind.INSTRUCTION, audience=("Ann",))),
        said(1, "", Line(kind=Kind.TOOL_CALLS, speaker="Ann"), tool_calls=[call]),  # type: ignore[list-item]
        result(2, "Monday: sun", speaker="Ann", call_id="a"),
        said(3, "Dig on Monday.", Line(kind=Kind.SPEECH, speaker="Ann")),
        said(4, judging.WHAT_IS_LEFT, aside),
        said(5, "Beans.", answer),
        said(6, judging.IS_COMPLETE, aside),
        said(7, "No.", answer.model_copy(update={"verdict": no})),
        said(8, "Dug.", draft),
        said(9, "DONE", Line(kind=Kind.SPEECH, speaker="Ben")),
    ]


STATES: dict[str, tuple[int, dict[str, Any], str]] = {
    "started": (1, {}, "task_specification"),
    "called": (2, {"event": "called", "speaker": "Ann"}, "user_agent"),
    "returned": (3, {"event": "returned", "speaker": "Ann", "tool_rounds": 1}, "tool_executor"),
    "spoken": (4, {"event": "spoken", "speaker": "Ann", "turns": 1}, "user_agent"),
    "asked": (6, {"event": "asked", "speaker": "Ann", "turns": 1}, "completion_judge"),
    "judged": (8, {"event": "judged", "speaker": "Ann", "turns": 1}, "completion_judge"),
    "rejected": (
        9,
        {"event": "rejected", "speaker": "Ben", "turns": 1, "asked_again": True},
        "assistant_agent",
    ),
    "finished": (
        10,
        {"event": "spoken", "speaker": "Ben", "turns": 2, "said_done": True},
        "assistant_agent",
    ),
}
"""How much of the log there was, what was other than at first, and the node that wrote it."""

CALLED = Reply(tool_calls=[ScriptedToolCall(name="weather", args={"day": "Monday"}, id="a")])
CALLS: list[Spoken] = [CALLED, "Dig on Monday.", "Beans.", "No.", "Dug.", "DONE"]
REST = {
    "started": 0,
    "called": 1,
    "returned": 1,
    "spoken": 2,
    "asked": 3,
    "judged": 4,
    "rejected": 5,
    "finished": 6,
}
"""How many of the calls had been made."""

ENDED = {
    "reasons": ["done_token"],
    "because": ["Ben said the done token"],
    "by": "Ben",
    "message": "m0009",
    "rounds": 1,
    "messages": 2,
    "completed": [],
    "usage": {"scripted": {"calls": 6, "input_tokens": 60, "output_tokens": 6, "cached_tokens": 0}},
}
"""An outcome as the release before wrote it."""


async def leave(store: str, name: str) -> None:
    """Put a session into a store as the release before left it."""
    kept, changed, node = STATES[name]
    state: dict[str, Any] = {
        "conversation": SPEC,
        "spec": SPEC,
        "specified_task": "Plan a garden",
        "messages": old_log()[:kept],
        "position": AT_FIRST | changed,
        "usage": {"scripted": {"calls": 2, "input_tokens": 20, "output_tokens": 2}},
    }
    if name == "finished":
        state |= {"outcome": ENDED, "usage": ENDED["usage"]}
    async with open_store(store) as opened, opened.lock("one") as held:
        graph = build_graph(checkpointer=held.checkpointer)
        await held.add(title="Plan a garden", spec=json.dumps(SPEC))
        config: Any = {"configurable": {"thread_id": "one", "checkpoint_ns": ""}}
        await graph.aupdate_state(config, state, as_node=node)
        if name == "finished":
            await held.finish("done_token")


def texts(found: Result) -> list[tuple[str, str]]:
    return [(str(message.id), message.text) for message in found.messages]


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'sessions.db'}"


def go_on(session: str, store: str, lines: list[Spoken]) -> Result:
    model = ScriptedChatModel(script=lines)
    ended = resume(session, store=store, model=model, **FUNCTIONS)
    assert len(model.calls) == len(lines)
    return ended


async def test_the_spec_means_what_it_meant(store: str) -> None:
    spec = Conversation.model_validate(
        SPEC
        | {
            "version": SPEC_VERSION,
            "speakers": [
                {"name": "Ann", "tools": ["weather"], "stops_chat": True},
                {"name": "Ben", "format": {"kind": "lines", "lines": ["Solution:"]}},
            ],
            "end_chat": {
                "mode": "end_chat_after_first_completion",
                "max_iterations": 2,
                "when": {"kind": "done_token", "token": "DONE", "by": "Ben"},
                "guards": {"role_flips": 3},
            },
        }
    )
    assert isinstance(spec.end_chat.when, DoneToken)
    await leave(store, "called")
    assert get_session("one", store=store).conversation == spec


@pytest.mark.parametrize("name", STATES)
async def test_a_session_of_the_release_before_is_listed_and_shown(
    name: str, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await leave(store, name)
    (row,) = list_sessions(store=store)
    finished = name == "finished"
    assert (row.session, row.title) == ("one", "Plan a garden")
    assert (row.status, row.reason) == (
        ("finished", "done_token") if finished else ("unfinished", None)
    )
    found = get_session("one", store=store)
    assert found.messages == old_log()[: STATES[name][0]]
    for speaker in (None, "Ann", "Ben"):
        show_session("one", FollowUp(store), speaker=speaker, why=False, as_json=False)
        shown = capsys.readouterr().out
        assert ("Not finished." in shown) is not finished
        assert ("Ended after 1 round and 2 messages: Ben said the done token." in shown) is finished
    show_session("one", FollowUp(store), speaker=None, why=False, as_json=True)
    assert all(json.loads(one) for one in capsys.readouterr().out.splitlines())


@pytest.mark.parametrize("name", STATES)
async def test_a_session_of_the_release_before_goes_on_in_mid_turn_as_if_nothing_was(
    name: str, store: str
) -> None:
    await leave(store, name)
    ended = go_on("one", store, CALLS[REST[name] :])
    assert texts(ended) == [(str(one.id), one.text) for one in old_log()]
    assert ended.outcome is not None
    assert (ended.outcome.reason, ended.outcome.by) == (Reason.DONE_TOKEN, "Ben")
    assert ended.outcome.sentence() == (
        "Ended after 1 round and 2 messages: Ben said the done token."
    )
    assert list_sessions(store=store)[0].reason == "done_token"
    assert go_on("one", store, []) == ended


@pytest.mark.parametrize("name", STATES)
async def test_a_session_of_the_release_before_is_forked_in_mid_turn_and_at_its_end(
    name: str, store: str
) -> None:
    await leave(store, name)
    same = fork("one", into="same", store=store)
    ended = go_on(same, store, CALLS[REST[name] :])
    assert texts(ended) == [(str(one.id), one.text) for one in old_log()]
    other = fork("one", into="other", store=store, end_chat={"when": None, "max_iterations": 1})
    ended = resume(other, store=store, model=ScriptedChatModel(script=answer), **FUNCTIONS)
    assert ended.outcome is not None
    assert ended.outcome.sentence() == (
        "Ended after 1 round and 2 messages: the round cap was reached."
    )
    assert ended.conversation.version == SPEC_VERSION


async def test_what_the_release_before_used_counts_in_a_fork(store: str) -> None:
    await leave(store, "finished")
    when = {"kind": "max_calls", "limit": 6}
    ended = go_on(fork("one", store=store, end_chat={"when": when}), store, [])
    assert ended.outcome is not None
    assert ended.outcome.because == ("the cap on model calls was reached (6 calls)",)


def answer(prompt: Prompt) -> str:
    """Answer by nothing but the prompt, without the done token."""
    last = str(prompt[-1]["content"])
    if last == judging.WHAT_IS_LEFT:
        return "Beans."
    if last == judging.IS_COMPLETE:
        return "No."
    return "Dig on Monday." if "You are Ann" in prompt[0]["content"] else "Solution: dug."
