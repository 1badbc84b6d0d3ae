"""The first difference between a recorded value and the value of a replay, in words."""

from typing import Final

_SHOWN: Final = 60
"""Number of characters of a text that an error shows around the first difference."""


def describe_difference(recorded: object, now: object, path: str = "") -> str:
    """Return the path and the two values of the first difference between two values of JSON."""
    match recorded, now:
        case dict(), dict():
            for name in dict.fromkeys((*recorded, *now)):
                if recorded.get(name) != now.get(name):
                    inner = f"{path}.{name}" if path else str(name)
                    return describe_difference(recorded.get(name), now.get(name), inner)
        case list(), list():
            for place, (one, other) in enumerate(zip(recorded, now, strict=False)):
                if one != other:
                    return describe_difference(one, other, f"{path}.{place}")
            if len(recorded) != len(now):
                return f"{path} has {len(now)} entries instead of {len(recorded)}"
        case str(), str():
            pairs = enumerate(zip(recorded, now, strict=False))
            short = min(len(recorded), len(now))
            place = next((at for at, (one, other) in pairs if one != other), short)
            start = max(0, place - _SHOWN // 3)
            cut = "…" if start else ""
            texts = [f"{cut}{text[start : start + _SHOWN]}" for text in (now, recorded)]
            return f"{path} is {texts[0]!r} instead of {texts[1]!r}"
    return f"{path} is {_shorten(now)} instead of {_shorten(recorded)}"


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
