"""Verdicts about a stored session, which are stored beside its log."""

import json
from collections.abc import Sequence
from datetime import UTC
from hashlib import sha256

from langchain_core.messages import AnyMessage
from pydantic import AwareDatetime, Field

from ..common.data import Data
from ..conversation.judges import SeparateJudge, Verdict
from ..conversation.usage import Usage, add_usage
from ..log.messages import metadata
from ..log.metadata import Reflection, Speech
from ..log.transcript import numbered_transcript, overheard
from ..rules.message_words import describe_findings
from ..store.base import SessionLease, Store
from ..store.rows import reading_store


class LaterVerdict(Data):
    """The verdict of a judge about a stored session."""

    judge: SeparateJudge
    """The judge."""
    usage: dict[str, Usage] = Field(default_factory=dict)
    """The usage of the call, by model."""
    log: str
    """The hash of the messages that the judge has read."""
    answer: str
    """The text of the judge's answer."""
    verdict: Verdict
    """The verdict."""
    batch: str | None = None
    """The name of the batch whose limits the call counts toward. None if it belongs to no batch."""
    created_at: AwareDatetime
    """The time of the answer, in UTC."""


async def write_verdict(held: SessionLease, number: int, verdict: LaterVerdict) -> None:
    """Store a verdict beside a session's log, under its number among the session's verdicts."""
    # As ASCII, because a model may have written lone surrogates, which have no encoding.
    await held.put_verdict(number, json.dumps(verdict.model_dump(mode="json")))


async def read_verdicts(store: Store, session: str) -> tuple[LaterVerdict, ...]:
    """Return the verdicts that are stored beside a session's log, oldest first."""
    found = await store.verdicts(session)
    with reading_store(store.url, session):
        return tuple(LaterVerdict.model_validate(json.loads(one)) for one in found)


def usage_for(batch: str | None, verdicts: Sequence[LaterVerdict]) -> Usage:
    """Return the usage of the verdicts that a batch asked for."""
    own = [used for one in verdicts if one.batch == batch for used in one.usage.values()]
    return add_usage(own)


def hash_log(log: Sequence[AnyMessage], judge: SeparateJudge) -> str:
    """Return the hash of the messages of a log that a judge reads."""
    return _hash_log(log, with_calls=judge.with_reasons)


def _hash_log(log: Sequence[AnyMessage], *, with_calls: bool) -> str:
    read = numbered_transcript(log, log) if with_calls else overheard(log, private=True)
    return sha256(read.encode(errors="surrogatepass")).hexdigest()


def verdicts_on(log: Sequence[AnyMessage], verdicts: Sequence[LaterVerdict]) -> list[LaterVerdict]:
    """Return the verdicts of judges who have read exactly these messages, oldest first."""
    kinds = {one.judge.with_reasons for one in verdicts}
    read = {kind: _hash_log(log, with_calls=kind) for kind in kinds}
    return [one for one in verdicts if one.log == read[one.judge.with_reasons]]


def describe_later(log: Sequence[AnyMessage], verdicts: Sequence[LaterVerdict]) -> list[str]:
    """Return one line for each verdict about a session, oldest first."""
    current = {id(one) for one in verdicts_on(log, verdicts)}
    lines = []
    for one in verdicts:
        model = ", ".join(one.usage) or one.judge.model
        by = f" by {model}" if model else ""
        about = "" if id(one) in current else ", before the messages changed"
        when = f"{one.created_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        found = describe_findings(one.verdict) or "the verdict could not be read"
        lines.append(f"Judged later{by} ({when}{about}): {found}")
    return lines


def verdict_at_end(log: Sequence[AnyMessage]) -> Verdict | None:
    """Return the verdict of the conversation's separate judge about the last message, or None."""
    for about in map(metadata, reversed(log)):
        if isinstance(about, Speech):
            return None
        if isinstance(about, Reflection) and about.verdict is not None and about.verdict.findings:
            return about.verdict
    return None
