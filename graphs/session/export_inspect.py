"""Sessions as samples and logs of Inspect, the evaluation framework.

This module imports ``inspect_ai``, so only the export to this format imports it.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import reduce
from importlib.metadata import version
from operator import add
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Literal

from inspect_ai.log import (
    EvalConfig,
    EvalDataset,
    EvalLog,
    EvalMetric,
    EvalResults,
    EvalSample,
    EvalScore,
    EvalSpec,
    EvalStats,
    write_eval_log,
)
from inspect_ai.model import ModelOutput, ModelUsage
from inspect_ai.scorer import Score

from ..common.errors import SpecError
from ..log.messages import storable
from ..log.transcript import trajectory
from .inspect_events import (
    MODEL,
    SampleFacts,
    SessionWriter,
    as_error,
    as_storable,
    as_usage,
    hash_of,
)
from .stored_session import StoredSession


def make_sample(result: StoredSession, facts: SampleFacts) -> EvalSample:
    """Return a session as a sample."""
    writer = SessionWriter(result, facts)
    said = trajectory(result.conversation, result.messages, result.specified_task, None)
    ended, started = facts.ended_at, facts.ended_at - timedelta(seconds=facts.seconds)
    error = None if facts.error is None else as_error(facts.error)
    return EvalSample(
        id=facts.id,
        epoch=facts.epoch,
        input=storable(result.conversation.task or result.specified_task or ""),
        target=storable(facts.target),
        messages=[writer.message(one, f"m{place}") for place, one in enumerate(said)],
        output=ModelOutput.from_content(writer.main_model, storable(result.text)),
        scores={name: Score(value=value) for name, value in facts.scores.items()},
        metadata=as_storable({"session": result.session_id, **facts.metadata}),
        events=[*writer.events()],
        model_usage={name: as_usage(used) for name, used in writer.usage.items()},
        role_usage={name: as_usage(used) for name, used in writer.usage_by_speaker.items()},
        started_at=started.isoformat(),
        completed_at=ended.isoformat(),
        total_time=facts.seconds,
        working_time=facts.seconds,
        uuid=hash_of(result.session_id),
        error=error,
        limit=writer.limit,
        turn_count=sum(one.calls for one in writer.usage.values()),
    )


def make_log(
    name: str, created: datetime, samples: Sequence[EvalSample], *, part: int = 1
) -> EvalLog:
    """Return samples as a log.

    Args:
        name: The name of the log's task.
        created: The time when the first session was created, in UTC.
        samples: The samples.
        part: The number of the log among the logs of the same task, from 1.
    """
    ids = [*dict.fromkeys(one.id for one in samples)]
    run = hash_of(name, created.isoformat())
    usage = [one.model_usage for one in samples]
    ends = [one.completed_at for one in samples if one.completed_at]
    return EvalLog(
        status="success",
        eval=EvalSpec(
            eval_id=hash_of(run, str(part)),
            run_id=run,
            created=created.isoformat(),
            task=name,
            task_id=hash_of(name),
            dataset=EvalDataset(name=name, samples=len(ids), sample_ids=ids),
            model=MODEL,
            config=EvalConfig(epochs=max((one.epoch for one in samples), default=1)),
            packages={one: version(one) for one in ("duologue", "inspect_ai")},
            metadata={"models": sorted({model for one in usage for model in one}), "part": part},
        ),
        results=_results(samples),
        stats=EvalStats(
            started_at=created.isoformat(),
            completed_at=max(ends, default=created.isoformat()),
            model_usage=_sums(usage),
            role_usage=_sums(one.role_usage for one in samples),
        ),
        samples=[*samples],
    )


def write_log(log: EvalLog, form: Literal["eval", "json"]) -> bytes:
    """Return a log as the content of a file. Blocks: call it in a thread.

    Raises:
        SpecError: The folder for temporary files is full.
    """
    try:
        with TemporaryDirectory(prefix="duologue-") as folder:
            path = Path(folder) / f"log.{form}"
            write_eval_log(log, str(path), format=form)
            return path.read_bytes()
    except OSError as error:
        raise SpecError(f"{gettempdir()}: can't be written: {error.strerror or error}") from error


def write_session(result: StoredSession, created: datetime, ended: datetime) -> str:
    """Return a session as a log of one sample, in Inspect's JSON format. Blocks."""
    error = result.failure if result.outcome is None else None
    seconds = 0.0 if result.outcome is None else result.outcome.seconds
    facts = SampleFacts(result.session_id, ended, seconds=seconds, error=error)
    log = make_log(result.session_id, created, [make_sample(result, facts)])
    return write_log(log, "json").decode()


def pack_session(text: str) -> bytes:
    """Return a log in Inspect's JSON format as the content of an ``.eval`` file. Blocks."""
    return write_log(EvalLog.model_validate_json(text), "eval")


def _results(samples: Sequence[EvalSample]) -> EvalResults:
    """Return the mean of each score."""
    names = [*dict.fromkeys(name for one in samples for name in one.scores or {})]
    scores: list[EvalScore] = []
    for name in names:
        found = [
            one.scores[name].as_float() for one in samples if one.scores and name in one.scores
        ]
        mean = EvalMetric(name="mean", value=sum(found) / len(found))
        scores.append(
            EvalScore(
                name=name,
                scorer=name,
                scored_samples=len(found),
                unscored_samples=len(samples) - len(found),
                metrics={"mean": mean},
            )
        )
    completed = sum(one.error is None for one in samples)
    return EvalResults(total_samples=len(samples), completed_samples=completed, scores=scores)


def _sums(parts: Iterable[Mapping[str, ModelUsage]]) -> dict[str, ModelUsage]:
    found: dict[str, list[ModelUsage]] = {}
    for part in parts:
        for name, used in part.items():
            found.setdefault(name, []).append(used)
    return {name: reduce(add, each) for name, each in found.items()}
