"""Conversations in which agents and people work on a task, and which stop at the right moment.

All public names of `duologue.graphs` can be imported from here, too.
"""

from importlib import import_module
from importlib.metadata import version
from typing import Any, Final

# An absolute name: pytest imports this file under another name if the folder of the clone has a
# dash in its name, and a relative import would then fail.
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
