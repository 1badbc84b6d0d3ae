"""Agreement between the detection of single farewells and labelled dialogue acts.

A message is a closing if all of its acts are GOODBYE, THANK_YOU or NEGATE (the answer to "Is there
anything else?"), and at least one is GOODBYE or THANK_YOU. A message with one of these two and
another act is mixed: it is counted apart. Only messages of at most twelve words count, since a
farewell is short.

The aim is a precision and a recall of 0.93 for "SGD, users", and a κ of 0.93 for "SGD, all". Both
contain every short message of their speakers, with all kinds of negatives. Two groups explain them:
annotators label "Okay, thank you." as SELECT or AFFIRM if it accepts an offer, and "SGD, users,
without acceptances" leaves out messages with no other act; in "SGD, all, thanks and goodbyes alone"
closings with NEGATE are mixed.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from duologue.graphs.text.sentences import is_farewell
from duologue.graphs.text.words import words_in
from endings.dialogue import half_of
from endings.intervals import Estimate, Table, kappa, share
from endings.readers import sgd, texts, woz

LONGEST = 12
"""Maximum number of words of a short message."""

ACCEPTING = {"SELECT", "AFFIRM"}


class Line(NamedTuple):
    """A single message."""

    dialogue: str  # the id that decides its half
    group: str
    text: str
    is_closing: bool | None  # None if mixed


@dataclass
class Agreement:
    """Agreement of the rules with the labels in one group of messages."""

    tables: list[Table] = field(default_factory=list)
    mixed: int = 0

    @property
    def total(self) -> Table:
        """The sum of all tables."""
        return Table.total(self.tables)

    @property
    def precision(self) -> Estimate | None:
        """The share of detected farewells that are closings."""
        return share(self.total.both, self.total.both + self.total.rule)

    @property
    def recall(self) -> Estimate | None:
        """The share of closings that are detected."""
        return share(self.total.both, self.total.both + self.total.label)

    @property
    def kappa(self) -> Estimate | None:
        """Cohen's κ."""
        return kappa(self.tables)


def lines(folders: Iterable[Path], convlab: Iterable[Path] = ()) -> Iterator[Line]:
    """Read the short messages of copies of SGD and ConvLab-2, and our own rows of farewells."""
    for name, text, is_closing in texts.closing_lines():
        yield Line(name, "our own texts", text, is_closing)
    for folder in convlab:
        for group, message in woz.messages_of(folder):
            if words_in(message.text) <= LONGEST:
                yield Line(message.dialogue, group, message.text, message.is_closing)
    for folder in folders:
        for one in sgd.utterances_of(folder):
            if len(one.text.split()) > LONGEST:
                continue
            yield Line(one.dialogue, "SGD, all", one.text, one.is_closing)
            alone = None if one.is_closing and "NEGATE" in one.acts else one.is_closing
            yield Line(one.dialogue, "SGD, all, thanks and goodbyes alone", one.text, alone)
            if one.speaker == sgd.SYSTEM:
                yield Line(one.dialogue, "SGD, systems", one.text, one.is_closing)
                continue
            yield Line(one.dialogue, "SGD, users", one.text, one.is_closing)
            if not one.acts <= ACCEPTING:
                yield Line(
                    one.dialogue, "SGD, users, without acceptances", one.text, one.is_closing
                )


def agreements(found: Iterable[Line]) -> dict[tuple[str, str], Agreement]:
    """Compare the rules with the labels, by half of the split and group."""
    groups = defaultdict[tuple[str, str], Agreement](Agreement)
    by_dialogue = defaultdict[tuple[str, str, str], list[Table]](list)
    for line in found:
        half = half_of(line.dialogue)
        if line.is_closing is None:
            groups[half, line.group].mixed += 1
            continue
        known = is_farewell(line.text, ("Bob", sgd.USER, sgd.SYSTEM))
        by_dialogue[half, line.group, line.dialogue].append(
            Table.of(rule=known, label=line.is_closing)
        )
    for (part, group, _), tables in by_dialogue.items():
        groups[part, group].tables.append(Table.total(tables))
    return groups
