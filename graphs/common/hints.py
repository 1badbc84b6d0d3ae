"""Remedies for likely wrong guesses: names of other libraries, and values of another kind.

``hints.toml`` contains them. This module is imported only when an error is explained.
"""

import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

_TABLES: Final = tomllib.loads((files(__package__) / "hints.toml").read_text(encoding="utf-8"))

SYNONYMS: Final[Mapping[str, Sequence[str]]] = {
    name: meant for names, meant in _TABLES["synonyms"] for name in names.split("|")
}
"""Names from other libraries, and likely guesses, with the fields and options they mean here."""


def suggest_name(unknown: str, known: Collection[str]) -> str:
    """Suggest how to set what an unknown field or option beside known ones means, or nothing."""
    unknown = unknown.casefold()
    for name in (unknown, *SYNONYMS.get(unknown, ())):
        for beside, names, remedy in _TABLES["names"]:
            if beside in known and name in names.split("|"):
                return f"; {remedy.format(name=name)}"
    return ""


def _name_kind(value: Any) -> str:  # noqa: ANN401  # any wrong value
    """Return the kind of a value, without importing the class of a LangChain object."""
    if isinstance(value, str):
        return "word" if value.isidentifier() else "text"
    if isinstance(value, int) and not isinstance(value, bool):
        return "number"
    if isinstance(value, list | tuple):
        return "list"
    if hasattr(value, "_llm_type"):
        return "model"
    if hasattr(value, "ainvoke") and hasattr(value, "get_name"):
        return "agent"
    if hasattr(value, "speakers") and hasattr(value, "end_chat"):
        return "conversation"
    if hasattr(value, "criteria"):
        return "judge"
    return "function" if callable(value) and not isinstance(value, type) else "other"


_LONGEST: Final = 60
"""Maximum number of characters of a value that a remedy repeats."""


def suggest_value(path: str, value: Any, *, wants_list: bool = False) -> str:  # noqa: ANN401
    """Suggest what to write in place of a wrong value of a field, or nothing."""
    try:
        return _suggest_value(path, value, wants_list=wants_list)
    except Exception:
        # Any attribute of a user's object may raise, such as those of a proxy without a context.
        return ""


def _suggest_value(path: str, value: Any, *, wants_list: bool) -> str:  # noqa: ANN401
    kind = _name_kind(value)
    if isinstance(value, str) and len(value) > _LONGEST:
        value = f"{value[:_LONGEST]}…"
    for pattern, kinds, remedy in _TABLES["values"]:
        if re.fullmatch(pattern, path) and (kinds == "any" or kind in kinds.split("|")):
            return f"; {remedy.format(kind=kind, value=value)}"
    if wants_list:
        shown = (
            repr(value) if kind in ("text", "word", "number") else "…" if kind == "other" else kind
        )
        return f"; put it into a list, as in {path.rpartition('.')[2]}=[{shown}]"
    name = getattr(value, "name", None)
    return f"; write its name, {name!r}" if kind == "other" and isinstance(name, str) else ""
