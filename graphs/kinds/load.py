"""Functions that read conversations from dicts and files, with one clear error for any fault.

A dict contains either a whole `Conversation`, or the short form of a kind: ``kind = "role_play"``
and the parameters of the function. Specs of older versions are upgraded first.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from ..common.errors import SpecError, check_depth, list_names
from ..common.files import read_fields
from ..conversation.conversation import Conversation, Form, restore_conversation
from ..speakers.replies import ConversationReply
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
        check_depth(source)
        return _from_dict(_load_inner(source, "", None), where="")
    return _from_file(Path(source), ())


def _from_file(path: Path, outer: Sequence[Path]) -> Conversation:
    """Read a file. `outer` are the files that contain it, the outermost first."""
    place = path.resolve()
    if place in outer:
        raise SpecError(f"{path}: the conversation contains itself; name another file in it")
    data = read_fields(path, "conversation")
    if "conversation" in data:
        raise SpecError(f"{path}: is a batch; run it with `duologue batch run {path}`")
    check_depth(data, f"{path}: ")
    read_path = partial(_read_inner_file, (*outer, place))
    return _from_dict(_load_inner(data, f"{path}: ", read_path), where=f"{path}: ")


def _read_inner_file(outer: Sequence[Path], name: str) -> Conversation:
    return _from_file(outer[-1].parent / name, outer)


def _load_inner(
    data: Any,  # noqa: ANN401  # any part of the data
    where: str,
    read_path: Callable[[str], Conversation] | None,
) -> Any:  # noqa: ANN401
    """Read the inner conversations in the data of a conversation.

    Their fields may be a short form. If `read_path` is None, paths are left as they are.
    """
    if isinstance(data, list | tuple):
        return [_load_inner(one, where, read_path) for one in data]
    if not isinstance(data, Mapping):
        return data
    read = {name: _load_inner(one, where, read_path) for name, one in data.items()}
    inner = read.get("conversation")
    if read.get("kind") != _INNER:
        return read
    if isinstance(inner, str) and read_path is not None:
        read["conversation"] = read_path(inner)
    elif isinstance(inner, Mapping) and "kind" in inner:
        read["conversation"] = _from_dict({**inner}, where)
    return read


_INNER: Final = str(ConversationReply.model_fields["kind"].default)


def read_kind(path: Path) -> str | None:
    """Return the kind whose short form a file contains, or None for a whole conversation."""
    kind = read_fields(path, "conversation").get("kind")
    return kind if isinstance(kind, str) else None


def _from_dict(data: dict[str, Any], where: str) -> Conversation:
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
