"""Content that callers pass: texts, paths, bytes, addresses and content blocks.

The type of a file is found in its bytes. A `Path` and bytes can only come from a caller in Python.
A block with a ``path`` or a ``url`` may also come from a client, a model or a tool, so it is opened
only if the caller of these functions permits it. A ``data:`` address contains the bytes, so nothing
is opened.
"""

import asyncio
import re
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

from .addresses import remember_secrets, show_address
from .content import (
    Block,
    Content,
    add_text,
    append_block,
    arrange_blocks,
    describe_size,
    file_block,
    is_inline_file,
    name_of_file,
    size_of_file,
    standard_block,
    text_block,
)
from .errors import SpecError, name_type
from .sanitize import excerpt, storable

MOST_BYTES: Final = 20_000_000
"""Maximum size of all files of a message, in bytes."""

ContentInput: TypeAlias = (
    str | bytes | Path | Mapping[str, Any] | Sequence[str | bytes | Path | Mapping[str, Any]]
)
"""The content of a message as callers pass it: a text, a file, or a list of texts and files. A file
is a `Path`, bytes, or one of LangChain's content blocks with ``base64``, ``url`` or ``path``."""

_TYPES: Final = (
    (b"\x89PNG\r\n\x1a\n", 0, "image/png"),
    (b"\xff\xd8\xff", 0, "image/jpeg"),
    (b"GIF87a", 0, "image/gif"),
    (b"GIF89a", 0, "image/gif"),
    (b"WEBP", 8, "image/webp"),
    (b"%PDF-", 0, "application/pdf"),
    (b"WAVE", 8, "audio/wav"),
    (b"ID3", 0, "audio/mp3"),
    (b"\xff\xfb", 0, "audio/mp3"),
    (b"\xff\xf3", 0, "audio/mp3"),
    (b"\xff\xf2", 0, "audio/mp3"),
)
"""The first bytes of each type of file, the place where they begin, and the type."""

_ACCEPTED: Final = "PNG, JPEG, WebP or GIF image, a PDF, or a WAV or MP3 file"

_TIMEOUT: Final = 30.0
"""Maximum seconds until a server sends its next bytes."""

_LONGEST_DOWNLOAD: Final = 60.0
"""Maximum seconds of a whole download."""

_MOST_REDIRECTS: Final = 5


def read_content(given: object, field: str, *, opens: bool = False) -> Content:
    """Read the content of a message. It blocks while it reads files.

    Args:
        given: The content, as `ContentInput`.
        field: The name of the field, for errors.
        opens: Whether blocks with a ``path`` or a ``url`` are opened. Only for content that a
            caller in Python or on the command line passes.

    Returns:
        A text, or content blocks with the bytes of each file, at most `MOST_BYTES` together. In
        texts, "?" replaces each character that can't be stored.

    Raises:
        SpecError: A part is not valid, or a file can't be read. The message names the part.
    """
    if isinstance(given, str):
        return storable(given)
    if isinstance(given, bytes | bytearray | Path | Mapping):
        return arrange_blocks([_read_part(given, field, MOST_BYTES, opens=opens)])
    if not isinstance(given, Sequence):
        raise SpecError(
            f"{field}: must be text, a file, or a list of texts and files, not {name_type(given)}"
        )
    blocks: list[str | Block] = []
    left = MOST_BYTES
    for place, part in enumerate(given):
        block = _read_part(part, f"{field}.{place}", left, opens=opens)
        left -= size_of_file(block) if is_inline_file(block) else 0
        blocks.append(block)
    return arrange_blocks(blocks)


async def load_content(given: object, field: str) -> Content:
    """Read the content of a message that a caller in Python or on the command line passes.

    Paths and addresses are opened.

    Raises:
        SpecError: See `read_content`.
    """
    if isinstance(given, str):
        return given
    return await asyncio.to_thread(read_content, given, field, opens=True)


def read_files(given: object, field: str) -> list[Block]:
    """Read files that a caller in Python or on the command line passes. It blocks meanwhile.

    Args:
        given: A list of paths (text or `Path`), addresses (``http://``, ``https://`` or ``data:``),
            bytes and content blocks.
        field: The name of the field, for errors.

    Raises:
        SpecError: A file is not valid, or can't be read. The message names its place in the list.
    """
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Sequence):
        raise SpecError(f"{field}: must be a list of paths, addresses or bytes; write [...]")
    parts = [_place(part) if isinstance(part, str) else part for part in given]
    found = read_content(parts, field, opens=True)
    blocks = [] if isinstance(found, str) else [one for one in found if isinstance(one, dict)]
    files = [one for one in blocks if is_inline_file(one)]
    if len(files) < len(parts):
        raise SpecError(f"{field}: must contain only files; pass texts in the message")
    return files


def move_path(file: object, folder: Path) -> object:
    """Return a file as `read_files` accepts it, with its path, if it has one, below a folder."""
    given = _place(file) if isinstance(file, str) else file
    if isinstance(given, Mapping) and isinstance(path := given.get("path"), str):
        return {**given, "path": str(folder / path)}
    return given


def _place(text: str) -> Mapping[str, Any]:
    # An address of another kind is an error that names the accepted kinds.
    is_address = "://" in text or _is_data_address(text)
    return {"type": "file", "url" if is_address else "path": text}


def _read_part(part: object, where: str, left: int, *, opens: bool) -> Block:
    if isinstance(part, str):
        return text_block(storable(part))
    if isinstance(part, bytes | bytearray):
        return _file(bytes(part), None, where, left)
    if isinstance(part, Path):
        return _open(part, where, left)
    if not isinstance(part, Mapping):
        raise SpecError(
            f"{where}: must be a text, a path, bytes or a content block, not {name_type(part)}"
        )
    if isinstance(path := part.get("path"), str):
        if not opens:
            raise SpecError(f"{where}: a path is not opened here; send the bytes as base64")
        return _open(Path(path), where, left)
    return _read_block(part, where, left, opens=opens)


def _read_block(part: Mapping[str, Any], where: str, left: int, *, opens: bool) -> Block:
    try:
        if not isinstance(part["type"], str):
            raise TypeError
        block = standard_block(part)
    except Exception as error:
        # LangChain raises errors of many types here.
        raise SpecError(
            f"{where}: is not one of LangChain's content blocks; pass a block with a type, and the "
            "bytes as base64"
        ) from error
    if block["type"] == "text":
        if not isinstance(block.get("text"), str):
            raise SpecError(f"{where}.text: must be text")
        return text_block(storable(block["text"]))
    if isinstance(url := block.get("url"), str):
        if _is_data_address(url):
            # RFC 2397.
            head, comma, data = url.partition(",")
            if not (comma and head.casefold().endswith(";base64")):
                raise SpecError(
                    f"{where}: a data address must contain base64; write data:image/png;base64,…"
                )
            return _decode({**block, "base64": data}, part.get("type"), where, left)
        if not opens:
            raise SpecError(f"{where}: an address is not opened here; send the bytes as base64")
        return _download(url, where, left)
    return _decode(block, part.get("type"), where, left)


def _is_data_address(url: str) -> bool:
    return url[:5].casefold() == "data:"


def _decode(block: Block, kind: object, where: str, left: int) -> Block:
    data = block.get("base64")
    if not isinstance(data, str):
        raise SpecError(
            f"{where}: a block of the type {kind!r:.40} is not accepted; send text, or the base64 "
            "bytes of an image, a file or audio"
        )
    # Refused before it is decoded: base64 has four characters for three bytes.
    _check_size(len(data) * 3 // 4 - 2, name_of_file(block), where, left)
    try:
        found = b64decode(data, validate=True)
    except ValueError as error:
        raise SpecError(f"{where}.base64: is not valid base64; encode the bytes again") from error
    return _file(found, name_of_file(block), where, left)


def _check_size(size: int, name: str | None, where: str, left: int) -> None:
    if size > left:
        raise SpecError(
            f"{where}: {_quote(name)} is too large; the files of a message may have "
            f"{describe_size(MOST_BYTES)} together"
        )


def _quote(name: str | None) -> str:
    return "the file" if name is None else excerpt(name, 100)


def _file(data: bytes, name: str | None, where: str, left: int) -> Block:
    """Return the block of a file whose type is found in its bytes."""
    _check_size(len(data), name, where, left)
    if not data:
        raise SpecError(f"{where}: {_quote(name)} is empty; pass another file")
    kind = find_mime_type(data)
    if kind is None:
        raise SpecError(
            f"{where}: {_quote(name)} is not a {_ACCEPTED}; convert it, or pass its text"
        )
    return file_block(b64encode(data).decode(), kind, name)


def find_mime_type(data: bytes) -> str | None:
    """Return the MIME type of a file by its first bytes, or None if it is not accepted."""
    for first, place, kind in _TYPES:
        if data[place : place + len(first)] == first and (not place or data[:4] == b"RIFF"):
            return kind
    return None


def read_bytes(data: bytes, name: str | None = None) -> Block:
    """Return bytes of a tool as a file of a known type, as text in UTF-8, or as their number."""
    kind = find_mime_type(data)
    if kind is not None:
        return file_block(b64encode(data).decode(), kind, name)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = None
    if text is None or _CONTROL.search(text):
        size = "1 byte" if len(data) == 1 else f"{len(data):,} bytes"
        text = f"[{', '.join(filter(None, (name, size)))}, not shown]"
    return text_block(text)


_CONTROL: Final = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
"""Characters that texts do not contain. A terminal's colours begin with another character."""


def _open(path: Path, where: str, left: int) -> Block:
    shown = excerpt(str(path))
    try:
        # A device or a pipe could block for ever.
        data = None
        if path.is_file():
            with path.open("rb") as file:
                data = file.read(left + 1)
        is_missing = not path.exists()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise SpecError(f"{where}: {shown} can't be read: {why}") from error
    if data is None:
        found = "does not exist" if is_missing else "is not a regular file"
        raise SpecError(f"{where}: {shown} {found}; correct the path")
    return _file(data, path.name, where, left)


def _download(url: str, where: str, left: int) -> Block:
    import httpx2  # takes long to import

    shown = excerpt(show_address(url), 200)
    remember_secrets(url)
    if not url.casefold().startswith(("http://", "https://")):
        raise SpecError(f"{where}: {shown} must begin with http:// or https://; correct it")
    until = time.monotonic() + _LONGEST_DOWNLOAD
    data = bytearray()
    try:
        with (
            httpx2.Client(
                timeout=_TIMEOUT, follow_redirects=True, max_redirects=_MOST_REDIRECTS
            ) as client,
            client.stream("GET", url) as response,
        ):
            response.raise_for_status()
            name = httpx2.URL(url).path.rpartition("/")[2] or None
            for piece in response.iter_bytes():
                data += piece
                _check_size(len(data), name, where, left)
                if time.monotonic() > until:
                    raise SpecError(
                        f"{where}: {shown} took longer than {_LONGEST_DOWNLOAD:g} s; download it "
                        "first, and pass its path"
                    )
    # Neither error is the cause of another, since their texts quote the address.
    except httpx2.HTTPStatusError as error:
        code = error.response.status_code
        raise SpecError(
            f"{where}: {shown} answered with HTTP {code}; correct the address"
        ) from None
    except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
        why = excerpt(str(error)) or type(error).__name__
        raise SpecError(f"{where}: {shown} can't be downloaded: {why}") from None
    return _file(bytes(data), name, where, left)


def keep_inline(content: Content) -> Content:
    """Return content of a model or a tool with its inline files. Nothing is opened.

    A line of text replaces each block that is not accepted, such as an address.
    """
    if isinstance(content, str):
        return content
    blocks: list[str | Block] = []
    left = MOST_BYTES
    gap = ""
    for part in content:
        try:
            block, next_gap = _read_part(part, "block", left, opens=False), ""
        except SpecError:
            block, next_gap = _read_refused(part), "\n"
        if is_inline_file(block):
            left -= size_of_file(block)
            next_gap = "\n"
        append_block(blocks, block, gap or next_gap)
        gap = next_gap
    return add_text(blocks)


def _read_refused(part: object) -> Block:
    """Return the text in the bytes of a file, or a line that describes the block."""
    is_file = isinstance(part, Mapping) and part.get("type") == "file"
    data = part.get("base64") if isinstance(part, Mapping) and is_file else None
    if isinstance(data, str) and 0 < len(data) <= MOST_BYTES:
        with suppress(ValueError):
            found = read_bytes(b64decode(data, validate=True), _name_kind(part))
            if not is_inline_file(found):
                return found
    return text_block(f"[{_name_kind(part)}, not shown]")


def _name_kind(part: object) -> str:
    kind = part.get("mime_type") or part.get("type") if isinstance(part, Mapping) else None
    return excerpt(str(kind or "content"), 60)
