"""Functions that read conversations from dicts and files, with one clear error for any fault.

A dict contains either a whole `Conversation`, or the short form of a kind: ``kind = "role_play"``
and the parameters of the function. Specs of older versions are upgraded first.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from ..common.errors import SpecError
from ..common.files import read_fields
from ..common.validation import check_depth, list_names
from ..conversation.conversation import Conversation, Form, restore_conversation
from . import list_kinds
from .short_form import form_of

ConversationLike = Conversation | Mapping[str, Any] | str | Path
"""A conversation, or a dict or file that contains one."""


def load_conversation(source: Mapping[str, Any] | str | Path) -> Conversation:
    """Read a conversation.

    Args:
        source: A dict, or the path of a ``.toml`` or ``.json`` file.

    Returns:
        The conversation.

    Raises:
        SpecError: The file can't be read or does not contain a valid conversation; the message
            names the file and the field.
    """
    if isinstance(source, Mapping):
        return _from_dict(dict(source), where="")
    path = Path(source)
    data = read_fields(path, "conversation")
    if "conversation" in data:
        raise SpecError(f"{path}: is a batch; run it with `duologue batch run {path}`")
    return _from_dict(data, where=f"{path}: ")


def read_kind(path: Path) -> str | None:
    """Return the kind whose short form a file contains, or None for a whole conversation."""
    kind = read_fields(path, "conversation").get("kind")
    return kind if isinstance(kind, str) else None


def _from_dict(data: dict[str, Any], where: str) -> Conversation:
    check_depth(data, where)
    kind = data.pop("kind", None)
    if kind is None:
        return restore_conversation(data, where)
    forms = forms_by_kind()
    if not isinstance(kind, str) or kind not in forms:
        raise SpecError(f"{where}kind: {kind!r} is unknown; choose one of {list_names(forms)}")
    try:
        return forms[kind].of(data)
    except SpecError as error:
        raise SpecError(f"{where}{error}") from error


@cache
def forms_by_kind() -> Mapping[str, type[Form]]:
    """Import and return the short forms, by their kinds."""
    package = __name__.rpartition(".")[0]
    modules = {kind: import_module(f"{package}.{kind}") for kind in list_kinds()}
    return {kind: form_of(getattr(module, kind)) for kind, module in modules.items()}
