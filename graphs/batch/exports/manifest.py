"""What is said of an exported batch, beside its file."""

from typing import Final, Literal

from pydantic import AwareDatetime, JsonValue, NonNegativeInt

from ...common.data import Data

BatchFormat = Literal["jsonl", "openai", "sharegpt"]
"""What a batch can be exported as."""

EXPORT_VERSION: Final = 1
"""The version of the shape of the files."""


class ExportManifest(Data):
    """What is in an exported file, and of what it was made. It stands beside the file."""

    file: str
    """The file's name."""
    format: BatchFormat
    """Its format."""
    version: int = EXPORT_VERSION
    """The version of that format."""
    batch: str
    """The batch's name."""
    speaker: str | None
    """Whose view it holds. None: nobody's, or that of each speaker."""
    filters: dict[str, JsonValue]
    """Which sessions were asked for."""
    sessions: NonNegativeInt
    """How many sessions are in it."""
    rows: NonNegativeInt
    """How many lines it has."""
    left_out: dict[str, NonNegativeInt]
    """How many sessions that have begun are not in it, by the filter that they did not pass;
    ``deleted``: the session is not there any more; ``speaker``: it has no speaker of that name;
    ``nothing_said``: nobody has said anything in it that a model could learn."""
    bytes: NonNegativeInt
    """How long the file is."""
    sha256: str
    """Its hash."""
    models: tuple[str, ...]
    """The models that were called in its sessions."""
    duologue: str
    """The version of duologue that wrote it."""
    spec_version: int
    """The version of the specs of its sessions."""
    written_at: AwareDatetime
    """When it was written, UTC."""
