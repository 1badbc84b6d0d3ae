"""Conversations of duologue for the benchmark.

Each sends a number of messages and calls `mark` after each.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel

from benchmarks.peers import NAMES, TASK, Mark
from duologue.graphs import Conversation, aconverse, astream, role_play

LETTERS = "ABCDEFGH"


def talk(
    count: int,
    speakers: int = 2,
    of_each: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Conversation:
    """Return a conversation of at least so many messages, which only the cap ends."""
    names = NAMES if speakers == 2 else LETTERS[:speakers]
    end_chat = {"max_iterations": -(-count // speakers), **fields.pop("end_chat", {})}
    return Conversation.model_validate(
        {
            "task": TASK,
            "speakers": [{"name": name, **(of_each or {})} for name in names],
            "end_chat": end_chat,
            **fields,
        }
    )


def role_play_of(count: int, words: int = 0, *, formed: bool) -> Conversation:
    """Return a role-play of at least so many messages, with its format or without.

    Args:
        count: Number of messages.
        words: Length of the server's answers. The session's own model is used if 0.
        formed: Whether the speakers use the format of a role-play.
    """
    form: dict[str, Any] = {} if formed else {"format": None}
    says = [f"{words} {mark}" if formed else f"{words}" for mark in ("instruction", "solution")]
    user, assistant = [form | ({"model": name} if words else {}) for name in says]
    return role_play(
        TASK,
        "Owner",
        "Gardener",
        specify_task=False,
        max_iterations=-(-count // 2),
        user=user,
        assistant=assistant,
    )


def playing(
    words: int, *, formed: bool, in_memory: bool = True
) -> Callable[[int, Mark, Path | str], Any]:
    """Return a function that runs a role-play with messages of so many words."""

    async def run(count: int, mark: Mark, store: Path | str) -> None:
        kept = "memory:" if in_memory else store
        await _converse(role_play_of(count, words, formed=formed), mark, kept)

    return run


async def plain(
    count: int, mark: Mark, store: Path | str, model: BaseChatModel | None = None
) -> None:
    """Run a conversation of two speakers."""
    await _converse(talk(count), mark, store, model)


async def streamed(count: int, mark: Mark, store: Path | str) -> None:
    """Stream a conversation of two speakers token by token."""
    async for event in astream(talk(count), store=store):
        if event.event == "message":
            mark()


async def with_tools(count: int, mark: Mark, store: Path | str) -> None:
    """Run a conversation of two speakers that call a tool in each turn."""
    await _converse(talk(count, of_each={"tools": ["high_low"]}), mark, store)


def judged(form: str) -> Callable[[int, Mark, Path | str], Any]:
    """Return a function that runs two speakers, with a judge after each turn."""

    async def run(count: int, mark: Mark, store: Path | str) -> None:
        judge = {"criteria": ["All beds are planned."], "model": "judge", "form": form}
        end_chat = {"mode": "end_chat_after_first_completion"}
        await _converse(talk(count, judge=judge, end_chat=end_chat), mark, store)

    return run


async def judging_themselves(count: int, mark: Mark, store: Path | str) -> None:
    """Run two speakers that judge their own task after each of their turns."""
    end_chat = {"mode": "end_chat_after_first_completion"}
    await _converse(
        talk(count, of_each={"checks_completion": True}, end_chat=end_chat), mark, store
    )


def of(speakers: int) -> Callable[[int, Mark, Path | str], Any]:
    """Return a function that runs a conversation of more than two speakers."""

    async def run(count: int, mark: Mark, store: Path | str) -> None:
        await _converse(talk(count, speakers), mark, store)

    return run


async def _converse(
    conversation: Conversation, mark: Mark, store: Path | str, model: BaseChatModel | None = None
) -> None:
    with _told_of_messages(mark):
        result = await aconverse(conversation, store=store, model=model)
    assert result.outcome is not None
    assert result.outcome.reason == "max_iterations", result.outcome


@contextmanager
def _told_of_messages(mark: Mark) -> Iterator[None]:
    """Call `mark` at each message; duologue logs messages, at almost no cost."""

    class Marker(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if " said %d characters" in record.msg:
                mark()

    logger, marker = logging.getLogger("duologue"), Marker(logging.INFO)
    level, propagates = logger.level, logger.propagate
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(marker)
    try:
        yield
    finally:
        logger.removeHandler(marker)
        logger.setLevel(level)
        logger.propagate = propagates
