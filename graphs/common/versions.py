"""Versions of stored data: which can be read, and the steps that bring older data up to date."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .errors import SpecError

Step = TypeVar("Step")

Migration = Callable[[dict[str, Any]], dict[str, Any]]
"""Makes data of the next version out of data of one."""


class VersionError(SpecError):
    """Data of a version that this release does not read."""


@dataclass(frozen=True)
class Versions(Generic[Step]):
    """The versions of one shape of data that this release reads.

    To change the shape, append the step that brings the newest version to the next one.
    """

    oldest: int
    """The oldest version that is read: that of 0.1.0, the first release."""
    steps: tuple[Step, ...] = ()
    """For the oldest version, and each one after it, the step to the next one."""

    @property
    def newest(self) -> int:
        """The version that this release writes."""
        return self.oldest + len(self.steps)

    def steps_from(self, version: int) -> tuple[Step, ...]:
        """Give the steps that bring this version to the newest one."""
        if version > self.newest:
            raise VersionError(
                f"version: {version} is newer than this release understands "
                f"({self.newest}); upgrade duologue"
            )
        if version < self.oldest:
            raise VersionError(
                f"version: {version} was written by an older development version and can't be "
                "read; begin anew"
            )
        return self.steps[version - self.oldest :]


def upgraded(
    data: dict[str, Any], versions: Versions[Migration], where: str = ""
) -> dict[str, Any]:
    """Bring versioned data to the newest version; without a version it is of that one."""
    version = data.get("version", versions.newest)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise SpecError(f"{where}version: must be a whole number from 1 on, not {version!r}")
    try:
        steps = versions.steps_from(version)
    except VersionError as error:
        raise VersionError(f"{where}{error}") from error
    for step in steps:
        version += 1
        data = step(data) | {"version": version}
    return data
