"""The comparison of systems: its stored results, and its tables in the documentation."""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict

from endings.dialogue import Case
from endings.intervals import Estimate
from endings.metrics import measure
from endings.report import table
from endings.scoring import Outcome, Scored
from endings.systems import System

WORD_CASES = (Case.WORD_SAID, Case.WORD_MENTIONED)
"""Kinds of case that a rule about a word can decide alone."""

SOURCES = {
    "autogen": "AutoGen's notebooks",
    "casino": "CaSiNo",
    "sgd": "Schema-Guided Dialogue",
    "tau": "tau-bench",
    "tau2": "tau2-bench",
    "multiwoz": "MultiWOZ",
    "multiwoz_zh": "MultiWOZ in Chinese",
    "crosswoz": "CrossWOZ",
    "star": "STAR",
    "deal": "Deal or No Deal",
    "intercode": "InterCode",
    "own": "your own",
    "corpus": "our own texts",
}
"""The titles of sources, in the order of the tables."""

OWN = "corpus"
"""Our own texts. Our rules are tested with them, so a comparison would favour us."""

_STORED = ConfigDict(frozen=True, extra="forbid")


class Share(BaseModel):
    """Numbers of a group of dialogues; shares with their 95 % intervals. None: of nothing."""

    model_config = _STORED

    dialogues: int
    premature: tuple[float, float, float] | None
    missed: tuple[float, float, float] | None
    right: int
    late: int
    ties: int
    undecidable: int
    model_calls: float
    tokens: float

    @classmethod
    def of(cls, scored: Sequence[Scored]) -> Self:
        """Measure a group of dialogues."""
        found = measure(scored)
        return cls(
            dialogues=found.dialogues,
            premature=_rounded(found.premature),
            missed=_rounded(found.missed),
            right=found.outcomes[Outcome.RIGHT] + found.outcomes[Outcome.OPEN],
            late=found.outcomes[Outcome.LATE],
            ties=found.outcomes[Outcome.TIE],
            undecidable=found.outcomes[Outcome.UNDECIDABLE],
            model_calls=found.calls.value if found.calls else 0,
            tokens=found.tokens.value if found.tokens else 0,
        )


class SystemResult(BaseModel):
    """The results of one system."""

    model_config = _STORED

    name: str
    title: str
    version: str
    left_out: dict[str, int]
    """Dialogues by source that the system can't have."""
    all: dict[str, Share]
    """All dialogues, by source."""
    words: dict[str, Share]
    """The dialogues in which only a word matters, by source."""

    @classmethod
    def of(cls, system: System, scored: Iterable[Scored], left_out: dict[str, int]) -> Self:
        """Measure a system's results by source."""
        everything: dict[str, list[Scored]] = {}
        for one in scored:
            everything.setdefault(one.dialogue.source, []).append(one)
        words = {
            source: [one for one in part if one.dialogue.label.case in WORD_CASES]
            for source, part in everything.items()
        }
        return cls(
            name=system.name,
            title=system.title,
            version=system.version,
            left_out=left_out,
            all={source: Share.of(part) for source, part in everything.items()},
            words={source: Share.of(part) for source, part in words.items() if part},
        )


class Comparison(BaseModel):
    """The results of several systems on the same dialogues."""

    model_config = _STORED

    date: str
    """The day of the run, in UTC."""
    half: str
    """`tune`, `report` or `both`."""
    systems: tuple[SystemResult, ...]
    skipped: dict[str, str] = {}
    """Systems that could not be installed or started, with the reason."""

    @classmethod
    def today(cls, half: str, systems: Sequence[SystemResult], skipped: dict[str, str]) -> Self:
        """Return the comparison with the date of today."""
        day = datetime.now(UTC).date().isoformat()
        return cls(date=day, half=half, systems=tuple(systems), skipped=skipped)


def show(found: Comparison, group: str = "all", hidden: Collection[str] = ()) -> str:
    """Return a table: a row for each system, "premature, % / missed, %" for each source.

    Args:
        found: The results.
        group: `all` or `words`.
        hidden: Sources that are left out.
    """
    parts = {one.name: _group(one, group) for one in found.systems}
    sources = [
        name
        for name in SOURCES
        if name not in hidden and any(name in part for part in parts.values())
    ]
    sizes = {
        name: max(part[name].dialogues for part in parts.values() if name in part)
        for name in sources
    }
    head = ["system", *(f"{SOURCES[name]} ({sizes[name]:,})" for name in sources)]
    rows = [
        [
            f"{one.title} {one.version}".strip(),
            *(_cell(parts[one.name].get(name), sizes[name]) for name in sources),
        ]
        for one in found.systems
    ]
    return table(head, rows)


PAGE = Path("docs/measurements/endings.md")
"""The page with a place for each of the parts."""

PARTS: dict[str, Callable[[Comparison], str]] = {
    "all": lambda found: show(found, "all", (OWN,)),
    "words": lambda found: show(found, "words", (OWN,)),
    "date": lambda found: f"Measured on {found.date}, on the half `{found.half}`.",
}


def fill_page(found: Comparison, text: str) -> str:
    """Return the text of the page with these results."""
    for place, part in PARTS.items():
        begin, end = f"<!-- endings: {place} -->\n", f"<!-- endings: end of {place} -->"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n{part(found)}\n\n{end}{rest.partition(end)[2]}"
    return text


def _group(one: SystemResult, group: str) -> dict[str, Share]:
    return one.all if group == "all" else one.words


def _cell(share: Share | None, size: int) -> str:
    if share is None:
        return "–"  # noqa: RUF001
    part = "" if share.dialogues == size else f", of {share.dialogues:,}"
    late = f", {share.late} late" if share.late else ""
    return f"{_percent(share.premature)} / {_percent(share.missed)}{late}{part}"


def _percent(share: tuple[float, float, float] | None) -> str:
    return "–" if share is None else f"{share[0] * 100:.2f}"  # noqa: RUF001


def _rounded(found: Estimate | None) -> tuple[float, float, float] | None:
    return found and (round(found.value, 5), round(found.low, 5), round(found.high, 5))
