"""The files of the messages in a dump, which contains the bytes of each file once."""

from base64 import b64decode
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

from ..common.content import is_inline_file

_BYTES: Final = "base64"
_DIGEST: Final = "digest"


def take_files_out(dump: dict[str, Any]) -> dict[str, Any]:
    """Return a dump in which each file is once in ``files``, and blocks contain its digest."""
    files: dict[str, str] = {}
    for message in _messages(dump):
        if blocks := message.get("blocks"):
            message["blocks"] = [_with_digest(one, files) for one in blocks]
    return {**dump, "files": files} if files else dump


def _with_digest(block: dict[str, Any], files: dict[str, str]) -> dict[str, Any]:
    if not is_inline_file(block):
        return block
    digest = sha256(b64decode(block[_BYTES])).hexdigest()
    files[digest] = block[_BYTES]
    return {_DIGEST if name == _BYTES else name: one for name, one in block.items()} | {
        _DIGEST: digest
    }


def put_files_back(dump: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dump in which the blocks contain the bytes of their files.

    Raises:
        ValueError: A block names a file that the dump does not contain, or a file has changed.
    """
    given = dump.get("files")
    files: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    for digest, data in files.items():
        _check(digest, data)
    steps = dump.get("steps")
    if not isinstance(steps, list | tuple):
        return {**dump}
    return {**dump, "files": {}, "steps": [_restore_step(step, files) for step in steps]}


def _check(digest: object, data: object) -> None:
    try:
        found = sha256(b64decode(data, validate=True)).hexdigest()  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ValueError(f"files.{digest}: is not valid base64; dump the session again") from error
    if found != digest:
        raise ValueError(f"files.{digest}: does not have this digest; dump the session again")


def _restore_step(step: Any, files: Mapping[str, Any]) -> Any:  # noqa: ANN401
    messages = step.get("messages") if isinstance(step, Mapping) else None
    if not isinstance(messages, list | tuple):
        return step
    return {**step, "messages": [_restore_message(one, files) for one in messages]}


def _restore_message(message: Any, files: Mapping[str, Any]) -> Any:  # noqa: ANN401
    blocks = message.get("blocks") if isinstance(message, Mapping) else None
    if not isinstance(blocks, list | tuple):
        return message
    return {**message, "blocks": [_with_bytes(one, files) for one in blocks]}


def _with_bytes(block: Any, files: Mapping[str, Any]) -> Any:  # noqa: ANN401
    if not isinstance(block, Mapping) or _DIGEST not in block:
        return block
    digest = block[_DIGEST]
    if digest not in files:
        raise ValueError(f"files: the file {digest!s:.80} is missing; dump the session again")
    rest = {name: one for name, one in block.items() if name != _DIGEST}
    return {**rest, _BYTES: files[digest]}


def _messages(dump: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the messages of a dump that was just written."""
    for step in dump.get("steps", ()):
        yield from step.get("messages", ())
