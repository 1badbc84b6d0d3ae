"""What a name looks like, whatever it is written with. Pure functions."""

# ruff: noqa: RUF001

import unicodedata
from typing import Final

_PAIRS: Final = (
    # Cyrillic, Greek, Armenian and Cherokee letters, each under the Latin one that it looks like.
    ("АВЕЅІЈКМНОРСТУХҮԌԚԜ", "ABESIJKMHOPCTYXYGQW"),
    ("аеорсухѕіјһԁԛԝѵ", "aeopcyxsijhdqwv"),
    ("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧϹϳο\u03bdρϲ", "ABEZHIKMNOPTYXCjovpc"),
    ("ՕօոսհԼ", "OonuhL"),
    ("ᎪᏴᎬᎻᏆᎫᏦᎷᏢᎡᏚᎢᏔᏃ", "ABEHIJKMPRSTWZ"),
    ("ıɑɡ", "iag"),
    ("‐‑‒–—−’ʼ", "------''"),
)
_LATIN: Final = {ord(one): latin for pair in _PAIRS for one, latin in zip(*pair, strict=True)}

_UNSEEN: Final = frozenset("\u034f\u115f\u1160\u3164\uffa0\u17b4\u17b5")
"""Characters that show nothing, though their category says otherwise."""


def looks(name: str) -> tuple[str, str]:
    """Give what a name is the same by: its letters without case, and how these look."""
    # Format characters, such as a zero-width space, show nothing either.
    seen = "".join(sign for sign in name if sign not in _UNSEEN and not _is_unseen(sign))
    shown = " ".join(unicodedata.normalize("NFKC", seen).split())
    return shown.casefold(), shown.translate(_LATIN).casefold()


def _is_unseen(sign: str) -> bool:
    return unicodedata.category(sign) == "Cf" or "\ufe00" <= sign <= "\ufe0f"
