"""Sessions with any messages, which are loaded from a dump. No tests here."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any
from uuid import uuid4

from duologue import Session, chat, converse, load_session

PAIR: dict[str, Any] = {"task": "Plan", "speakers": [{"name": "Ann"}, {"name": "Ben"}]}
"""A conversation of two speakers."""


@cache
def _new_dump() -> dict[str, Any]:
    """Return the dump of a session that has just begun, for the versions in it."""
    dump: dict[str, Any] = converse(chat(), store=f"memory:{uuid4().hex}").session.dump()
    return dump


def said(
    *texts: str, names: tuple[str, str] = ("Ann", "Ben"), **metadata: Any
) -> list[dict[str, Any]]:
    """Return messages of two speakers in turn, as a dump contains them."""
    speakers = (names[number % 2] for number in range(len(texts)))
    return [
        {"text": text, "metadata": {"kind": "speech", "speaker": name, **metadata}}
        for text, name in zip(texts, speakers, strict=True)
    ]


def load(
    messages: Iterable[Mapping[str, Any]], spec: Mapping[str, Any] = PAIR, **fields: Any
) -> Session:
    """Load a session with these messages. `fields` are further fields of its only step."""
    dump = _new_dump()
    numbered = [{"id": f"m{number:04}", **one} for number, one in enumerate(messages)]
    count = sum(one["metadata"]["kind"] == "speech" for one in numbered)
    position = {"facts": {"messages": count, "seconds": 1}}
    step = {"messages": numbered, "position": position, "specified_task": "Plan", **fields}
    spec = {"version": dump["spec"]["version"], **spec}
    return load_session({**dump, "spec": spec, "steps": [step]}, store=f"memory:{uuid4().hex}")
