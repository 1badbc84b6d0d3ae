"""Where the sentences of a text end, in any script. Pure functions."""

import re
from functools import cache
from typing import Any, Final

from ..farewells import FACE
from .decoration import EMPHASIS

_NEAR: Final = 300
"""How many characters before a place are looked at for a sentence's end."""

_OPEN_POINT = re.compile(
    # After these points a sentence goes on, and so it does after the number of a list's item.
    r"(?<!\w)(?:e\. ?g|i\. ?e|z\. ?B|d\. ?h|p\. ?ex|p\. ?ej|cf|viz|vs|bzw)\.\Z"
    r"|(?<!\w)(?:т\. ?е|напр)\.\Z"  # noqa: RUF001
    # The first of two such points.
    r"|(?<!\w)[deipzт]\.\Z"
    r"|(?:\n|[.!?:;]\s)\s*\(?\d{1,2}[.)]\Z",
    re.IGNORECASE,
)


def last_sentence(before: str, first: str) -> str:
    """Return the part of a sentence that a text ends with, or an empty text after a sentence's end.

    Args:
        before: The text.
        first: The character that comes after it.
    """
    near = before[-_NEAR:]
    begin = max(near.rfind(sign) for sign in "\n\r\u2028\u2029") + 1
    for found in _sentence_end().finditer(near, begin):
        if found.end() == len(near):
            # "config.DONE" is one word.
            is_end = not (near[-1] in ".!?" and first.isalnum())
        else:
            is_end = found[0][-1].isspace() or found[0][0] in "。！？｡"  # noqa: RUF001
        if is_end and _OPEN_POINT.search(near[: found.start() + 1]) is None:
            begin = found.end()
    return near[begin:]


@cache
def _sentence_end() -> Any:  # noqa: ANN401  # regex has no types
    # It costs more to load than a conversation to run, and is needed by few.
    import regex  # type: ignore[import-untyped]

    emoji = r"(?:\p{Emoji_Presentation}|\p{Extended_Pictographic}\ufe0f)"
    signs = re.escape(f"{EMPHASIS}`\"'")
    return regex.compile(
        # Any script's, but no ellipsis, which leaves a sentence open. A semicolon asks in Greek;
        # Tibetan has a stroke, Thai a polite word.
        rf"(?:(?<!\.)(?:\p{{STerm}}|[།༎\u037e]|(?<=\p{{Greek}});)(?!\.\.)|{emoji}"
        rf"|ค่ะ|คะ|ครับ|จ้ะ|จ้า|{FACE.pattern})"
        # Brackets and quotation marks close after it, and emphasis opens.
        rf"(?:[\p{{Pe}}\p{{Pf}}\p{{Pi}}\p{{Cf}}\p{{Emoji_Modifier}}\ufe0f\s{signs}]|{emoji}|[!?])*"
    )
