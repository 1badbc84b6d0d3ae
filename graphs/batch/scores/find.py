"""Finding what scores a batch by the names that it gives."""

from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from typing import Final

from ....tools.registry.given import by_name, check_name, loaded
from ....tools.registry.registrable import check_kind
from ...common.data import Bringing
from ...common.errors import SpecError
from ...common.validation import near_or_all
from .score import ScoreFunction

_KIND: Final = "scores"


def find_scores(
    names: Iterable[str], given: Mapping[str, ScoreFunction] | None = None
) -> dict[str, ScoreFunction]:
    """Find the scores that a batch names. May import packages and read files.

    Args:
        names: Their names; one that was made of a function brings it along.
        given: Functions by name. They come before those that packages offer as entry points of
            the group ``duologue.scores``.

    Returns:
        The functions by name, in the order of the names.

    Raises:
        SpecError: There is no such score, or what has its name is no function of a result.
    """
    own = by_name(_KIND, given)
    for name, function in own.items():
        check_name(name, _KIND)
        check_kind(_KIND, function, f"{_KIND}: {name!r}")
    return {str(name): _found(name, own) for name in names}


def _found(name: str, own: Mapping[str, ScoreFunction]) -> ScoreFunction:
    if isinstance(name, Bringing):
        brought: ScoreFunction = name.brought  # type: ignore[assignment]  # checked here
        check_kind(_KIND, brought, f"score: {str(name)!r}")
        if own.get(name, brought) is not brought:
            raise SpecError(
                f"score: two different scores are called {str(name)!r}: give each a name of its own"
            )
        return brought
    if name in own:
        return own[name]
    offered = entry_points(group=f"duologue.{_KIND}")
    entries = [*offered.select(name=name)]
    if not entries:
        hint = near_or_all(name, sorted({*own, *offered.names}))
        raise SpecError(f"score: there is no score {name!r}{hint}")
    found: ScoreFunction = loaded(_KIND, entries, "score")
    return found
