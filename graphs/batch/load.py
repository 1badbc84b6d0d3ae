"""Reading batches from dicts and files, with one clear error for what is wrong."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..common.errors import SpecError
from ..common.files import read_fields
from ..common.validation import kind_of, validated
from .spec import Batch

_OF_CONVERSATIONS: Final = ("kind", "speakers")
"""Fields of which a conversation has one, and a batch none."""


def load_batch(source: Mapping[str, Any] | str | Path) -> Batch:
    """Read a batch.

    Args:
        source: A dict, or the path of a ``.toml`` or ``.json`` file. Files that it names are
            looked for in its own folder; those that a dict names, in the working folder.

    Returns:
        The batch.

    Raises:
        TypeError: It is neither a dict nor a path.
        SpecError: The file can't be read or does not hold a valid batch; names the file and the
            field.
    """
    if isinstance(source, Mapping):
        if _is_conversation(source):
            raise SpecError("it is a conversation: put it into the field conversation of a batch")
        return validated(Batch, source)
    if not isinstance(source, str | Path):
        raise TypeError(f"a batch must be a Batch, a dict or a file, not {kind_of(source)}")
    path = Path(source)
    data = read_fields(path, "batch")
    if _is_conversation(data):
        raise SpecError(
            f"{path}: is a conversation: run it by `duologue run {path}`, or name the file in a "
            "batch's conversation"
        )
    batch = validated(Batch, data, f"{path}: ")
    files: dict[str, Any] = {
        "vary": {
            key: str(path.parent / values) if isinstance(values, str) else values
            for key, values in batch.vary.items()
        }
    }
    if isinstance(batch.conversation, str):
        files["conversation"] = str(path.parent / batch.conversation)
    return batch.model_copy(update=files)


def _is_conversation(fields: Mapping[str, Any]) -> bool:
    return "conversation" not in fields and not fields.keys().isdisjoint(_OF_CONVERSATIONS)
