"""Versions of stored data that this release reads, and the steps that upgrade older data."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from .errors import SpecError

Step = TypeVar("Step")

Migration = Callable[[dict[str, Any]], dict[str, Any]]
"""A function that returns data of the next version."""

BEFORE_RELEASE: Final = "written by a development version before 0.1.0"
"""The reason why data of a version before `Versions.oldest` is refused."""


class VersionError(SpecError):
    """An error about data of a version that this release does not read."""


@dataclass(frozen=True)
class Versions(Generic[Step]):
    """The versions of one kind of stored data that this release reads.

    To change the shape of the data, append the step that upgrades the newest version to the next.
    """

    oldest: int
    """The oldest version that is read, the version of the first release 0.1.0."""
    steps: tuple[Step, ...] = ()
    """The step from each version to the next one, beginning with the oldest."""

    @property
    def newest(self) -> int:
        """Return the version that this release writes."""
        return self.oldest + len(self.steps)

    def steps_from(self, version: int) -> tuple[Step, ...]:
        """Return the steps that upgrade this version to the newest one.

        Raises:
            VersionError: The version belongs to a newer release or to a development version.
        """
        if version > self.newest:
            raise VersionError(
                f"version: this release reads versions up to {self.newest}, not {version}; upgrade "
                "duologue"
            )
        if version < self.oldest:
            raise VersionError(f"version: {version} was {BEFORE_RELEASE}; create it again")
        return self.steps[version - self.oldest :]


def upgrade(data: dict[str, Any], versions: Versions[Migration], where: str = "") -> dict[str, Any]:
    """Upgrade versioned data to the newest version. Data without a version has the newest.

    Raises:
        SpecError: The version is not a valid number, or this release does not read it.
    """
    version = data.get("version", versions.newest)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise SpecError(f"{where}version: must be a whole number, 1 or more, not {version!r}")
    try:
        steps = versions.steps_from(version)
    except VersionError as error:
        raise VersionError(f"{where}{error}") from error
    for step in steps:
        version += 1
        data = step(data) | {"version": version}
    return data
