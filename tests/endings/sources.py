"""The sources of dialogues. No dialogue of others is kept here: each is read from a user's copy."""

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from endings.dialogue import Case, Dialogue, Label, Origin
from endings.readers import autogen, casino, deal, intercode, own, sgd, star, tau2, texts, woz


class Source(NamedTuple):
    """A source of dialogues; `README.md` names the versions that were read."""

    read: Callable[[Path], Iterator[Dialogue]]
    licence: str


SOURCES = {
    "tau2": Source(tau2.read, "MIT; activegraph-tau2-bench Apache 2.0, tau2-enhanced none given"),
    "sgd": Source(sgd.read, "CC BY-SA 4.0"),
    "casino": Source(casino.read, "CC BY 4.0"),
    "autogen": Source(autogen.read, "code MIT, documentation CC BY 4.0"),
    "intercode": Source(intercode.read, "MIT"),
    "convlab": Source(woz.read, "Apache 2.0"),
    "star": Source(star.read, "MIT"),
    "deal": Source(deal.read, "CC BY-NC 4.0"),
    "own": Source(own.read, "yours"),
}
"""The sources, by the name of the command's option that takes the folder of a copy."""


def dialogues(folders: Mapping[str, Sequence[Path]]) -> Iterator[Dialogue]:
    """Read our own texts and the copies of sources, with the labels that `labels.toml` corrects.

    Raises:
        ValueError: A folder has no dialogue of its source; names the option and the folder. It is
            raised before anything is read as a whole.
    """
    for name, paths in folders.items():
        for path in paths:
            if next(SOURCES[name].read(path), None) is None:
                raise ValueError(
                    f"--{name}: {path} has no dialogue of this source; give the "
                    "folder of a checkout"
                )
    return map(_labelled, chain(texts.read(), _of_copies(folders)))


def _of_copies(folders: Mapping[str, Sequence[Path]]) -> Iterator[Dialogue]:
    """Read the copies, each dialogue once."""
    seen = set[str]()
    for name, paths in folders.items():
        for dialogue in chain.from_iterable(map(SOURCES[name].read, paths)):
            if dialogue.id not in seen:
                seen.add(dialogue.id)
                yield dialogue


def _labelled(dialogue: Dialogue) -> Dialogue:
    given = _labels().get(dialogue.id)
    if given is None:
        return dialogue
    label = Label(
        Case(given["case"]),
        given["end"],
        Origin(given["origin"]),
        given.get("earliest", 0),
        given.get("signalled", False),
    )
    return replace(dialogue, label=label)


@cache
def _labels() -> dict[str, dict[str, Any]]:
    text = Path(__file__).with_name("labels.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
