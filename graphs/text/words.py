"""Texts of so many words. Pure functions."""

import re


def cut(text: str, limit: int) -> str:
    """Cut text to a number of words, at the end of a sentence where there is one."""
    if len(text.split()) <= limit:
        return text
    kept = " ".join(text.split()[:limit])
    ends = [found.end() for found in re.finditer(r"[.!?。！？](?=\s|$)", kept)]  # noqa: RUF001
    return kept[: ends[-1]] if ends else kept
