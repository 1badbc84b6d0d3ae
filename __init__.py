"""Agents and people work on a task by talking, and stop at the right moment.

All public names of `duologue.graphs` can be had from here, too.
"""

from importlib import import_module
from importlib.metadata import version
from typing import Any, Final

# By its full name: pytest gives this module another one where the folder of a clone has a dash.
_PUBLIC: Final = "duologue.graphs"


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name == "__version__":
        return version("duologue")
    try:
        return getattr(import_module(_PUBLIC), name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return ["__version__", *import_module(_PUBLIC).__all__]
