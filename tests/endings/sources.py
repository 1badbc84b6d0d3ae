"""The sources of dialogues. No dialogue of others is kept here: each is read from a user's copy."""

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from endings.dialogue import Case, Dialogue, Label, Origin
from endings.readers import autogen, casino, deal, intercode, own, sgd, star, tau2, texts, woz


@dataclass(frozen=True)
class Source:
    """A public source, in the version that the figures in the docs come from."""

    option: str
    """The command's option that takes the folder of a copy."""
    read: Callable[[Path], Iterator[Dialogue]]
    licence: str
    tested: tuple[str, ...]
    """The repositories and commits that were read."""


SOURCES = {
    "tau2": Source(
        "--tau2",
        tau2.read,
        "MIT; activegraph-tau2-bench Apache 2.0, tau2-enhanced none given",
        (
            "github.com/sierra-research/tau-bench 59a200c6d575d595120f1cb70fea53cef0632f6b",
            "github.com/bogoliubon/tau2-bench 185099eadda099bc4bdea32566165d6274348e1e",
            "github.com/simoneangarano/tau2-bench af0f388f86bba68e798dc94d50a0dc8398fdea3d",
            "github.com/jitrc/tau2-enhanced 4b23a7edc99ca836665784f6d6c0d4d0c79b49ba",
            "github.com/WhissleAI/tau2-bench-w bfcb460d2b790a2c742cdc579bea9215409ec6e2",
            "github.com/yoheinakajima/activegraph-tau2-bench "
            "2d8e2c2518523e13f981c5fa6f1a1547cae33400",
        ),
    ),
    "sgd": Source(
        "--sgd",
        sgd.read,
        "CC BY-SA 4.0",
        (
            "github.com/google-research-datasets/dstc8-schema-guided-dialogue "
            "e852981ae34990f4358979625854259302feaa78",
        ),
    ),
    "casino": Source(
        "--casino",
        casino.read,
        "CC BY 4.0",
        ("github.com/kushalchawla/CaSiNo 2f6ed4a6a55110152a7699fbaa8150d6036314be",),
    ),
    "autogen": Source(
        "--autogen",
        autogen.read,
        "code MIT, documentation CC BY 4.0",
        ("github.com/microsoft/autogen (branch 0.2) c631b34e212f5fe2fc74218d60470e83c805fd07",),
    ),
    "intercode": Source(
        "--intercode",
        intercode.read,
        "MIT",
        ("github.com/princeton-nlp/intercode c3e46d827cfc9d4c704ec078f7abf9f41e3191d8",),
    ),
    "convlab": Source(
        "--convlab",
        woz.read,
        "Apache 2.0",
        ("github.com/thu-coai/ConvLab-2 b014b81fcb1ff74f54681917eee39c14c87af3e5",),
    ),
    "star": Source(
        "--star",
        star.read,
        "MIT",
        ("github.com/RasaHQ/STAR 3058975092cdd09798e4a3a9e4ae135755824545",),
    ),
    "deal": Source(
        "--deal",
        deal.read,
        "CC BY-NC 4.0",
        (
            "github.com/facebookresearch/end-to-end-negotiator "
            "bbb93bbf00f69fced75d5c0d22e855bda07c9b78",
        ),
    ),
    "own": Source("--own", own.read, "yours", ()),
}
"""The public sources, by the name of the option without its dashes."""


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
                    f"{SOURCES[name].option}: {path} has no dialogue of this source; give the "
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
