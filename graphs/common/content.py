"""The content of messages: text, and images, audio and other files as content blocks.

A message without files has a plain text as its content. Otherwise the content is a list of
LangChain's standard content blocks: text, and files whose bytes are in the block, in base64.

The functions of the first part are pure. Those below read content that callers pass: texts, paths,
bytes and content blocks. The type of a file is found in its bytes. A `Path` and bytes can only come
from a caller in Python. A block with a ``path`` or a ``url`` may also come from a client, a model
or a tool, so it is opened only if the caller of these functions permits it. A ``data:`` address
contains the bytes, so nothing is opened.
"""

import asyncio
import re
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeAlias

from langchain_core.messages import HumanMessage

from .addresses import remember_secrets, show_address
from .errors import SpecError, name_type
from .sanitize import escape_invisible, excerpt, storable

Block: TypeAlias = dict[str, Any]
"""One of LangChain's content blocks."""

Content: TypeAlias = str | list[str | dict[str, Any]]
"""The content of a message, in LangChain's type."""

MOST_BYTES: Final = 20_000_000
"""Maximum size of all files of a message, in bytes."""

_FILES: Final = ("image", "audio", "file")
"""The types of blocks that contain a file."""

_GAP: Final = "\n\n"
"""The separator of two messages, and of two texts with a file between them."""

_LONGEST_NAME: Final = 100
"""Maximum length of a file's name, in characters."""

_LONGEST_SUFFIX: Final = 10
"""Maximum length of a suffix that a shortened name keeps, in characters."""


def files_of(content: Content) -> list[Block]:
    """Return the blocks of the files in content."""
    if isinstance(content, str):
        return []
    return [one for one in content if isinstance(one, dict) and is_inline_file(one)]


def text_of(content: Content) -> str:
    """Return the text of content, as LangChain's `BaseMessage.text` does."""
    if isinstance(content, str):
        return content
    return "".join(_texts(content))


def _texts(content: Sequence[str | Block]) -> Iterator[str]:
    for one in content:
        if isinstance(one, str):
            yield one
        elif one.get("type") == "text":
            yield str(one.get("text") or "")


def text_block(text: str) -> Block:
    """Return the content block of a text."""
    return {"type": "text", "text": text}


def file_block(data: str, mime_type: str, name: str | None = None) -> Block:
    """Return the content block of a file.

    Args:
        data: The bytes in base64.
        mime_type: The type of the file, such as ``image/png``.
        name: The name of the file, without folders. None if it has no name.
    """
    first = mime_type.partition("/")[0]
    block = {"type": first if first in _FILES else "file", "base64": data, "mime_type": mime_type}
    if block["type"] == "file":
        # OpenAI requires a name.
        name = name or f"file.{mime_type.rpartition('/')[2]}"
    plain = _clean_name(name or "")
    return {**block, "extras": {"filename": plain}} if plain else block


def _clean_name(name: str) -> str:
    """Return a file's name without folders and invisible characters. A clean name stays as it is.

    A long name keeps its suffix, by which models and people know the type.
    """
    last = name.replace("\\", "/").rpartition("/")[2]
    # A backslash of an escape would be read as a folder when the block is read again.
    plain = escape_invisible(last).replace("\\", "_")
    if len(plain) <= _LONGEST_NAME:
        return plain
    suffix = PurePosixPath(plain).suffix
    if len(suffix) > _LONGEST_SUFFIX:
        return plain[:_LONGEST_NAME]
    return plain[: _LONGEST_NAME - len(suffix)] + suffix


def make_content(text: str, files: Sequence[Block]) -> Content:
    """Return content with a text and files. If there are no files, it is the text."""
    if not files:
        return text
    return [text_block(text), *files] if text else [*files]


def name_of_file(block: Mapping[str, Any]) -> str | None:
    """Return the name of a file, or None if it has none."""
    extras = block.get("extras")
    name = extras.get("filename") if isinstance(extras, Mapping) else block.get("filename")
    return name if isinstance(name, str) and name else None


def bytes_of_file(block: Mapping[str, Any]) -> bytes:
    """Return the bytes of a file."""
    return b64decode(block["base64"])


def size_of_file(block: Mapping[str, Any]) -> int:
    """Return the size of a file, in bytes."""
    data: str = block["base64"]
    return len(data) * 3 // 4 - data[-2:].count("=")


def describe_size(size: int) -> str:
    """Return a size in bytes as people read it, such as ``120 KB``."""
    if size < 1000:
        return f"{size} bytes"
    return f"{round(size / 1000)} KB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


def describe_file(block: Mapping[str, Any]) -> str:
    """Return a short description of a file, such as ``image plan.png, 120 KB``."""
    named = " ".join(filter(None, (str(block["type"]), name_of_file(block))))
    return f"{named}, {describe_size(size_of_file(block))}"


def describe_content(content: Content) -> str:
    """Return content as text in which each file is described, such as ``[image a.png, 9 KB]``."""
    if isinstance(content, str):
        return content
    text = text_of(content).strip()
    described = (f"[{describe_file(one)}]" for one in files_of(content))
    return "\n".join(filter(None, [text, *(one for one in described if one not in text)]))


def hide_files(content: Content, is_hidden: Callable[[Block], bool]) -> Content:
    """Return content in which a line of text replaces some files."""
    if not files_of(content) or isinstance(content, str):
        return content
    found: list[str | Block] = []
    for one in content:
        if isinstance(one, dict) and is_inline_file(one) and is_hidden(one):
            one = text_block(f"[{describe_file(one)}, not shown]")
        append_block(found, one, "\n")
    is_text = all(isinstance(one, dict) and one.get("type") == "text" for one in found)
    return text_of(found) if is_text else found


def replace_text(content: Content, text: str) -> Content:
    """Return content with another text and the same files.

    If the new text contains the old one, the order of texts and files stays.
    """
    if isinstance(content, str) or not files_of(content):
        return text
    old = text_of(content)
    if text == old:
        return content
    before, found, behind = text.partition(old.strip())
    if not (old.strip() and found):
        return make_content(text, files_of(content))
    parts = [
        one
        for one in content
        if isinstance(one, dict) and (one.get("type") == "text" or is_inline_file(one))
    ]
    texts = [place for place, one in enumerate(parts) if one.get("type") == "text"]
    first, last = texts[0], texts[-1]
    shown = [{**one} for one in parts]
    shown[first]["text"] = before + shown[first]["text"].lstrip()
    shown[last]["text"] = shown[last]["text"].rstrip() + behind
    return [*shown]


def join_content(before: Content, after: Content) -> Content:
    """Join the contents of two messages, with a blank line between their texts."""
    if isinstance(before, str) and isinstance(after, str):
        return _GAP.join(part for part in (before, after) if part)
    found = _as_blocks(before)
    for one in _as_blocks(after):
        append_block(found, one, _GAP)
    return found


def _as_blocks(content: Content) -> list[str | Block]:
    if isinstance(content, str):
        return [text_block(content)] if content else []
    return [*content]


def append_block(blocks: list[str | Block], new: str | Block, gap: str) -> None:
    """Add a block to a list. A gap separates its text from the text before it."""
    block = text_block(new) if isinstance(new, str) else new
    if block.get("type") != "text":
        blocks.append(block)
        return
    # The text before it may be long, so it is not joined for each block.
    before = next(filter(None, (text_of([one]) for one in reversed(blocks))), "")
    text = block["text"]
    space = "" if not before or before[-1:].isspace() or text[:1].isspace() else gap
    last = blocks[-1] if blocks else None
    if isinstance(last, dict) and last.get("type") == "text":
        blocks[-1] = text_block(f"{last['text']}{space}{text}")
    else:
        blocks.append(text_block(space + text))


def arrange_blocks(blocks: Sequence[str | Block]) -> Content:
    """Return blocks as the content of a message. If there are no files, it is the joined text.

    Texts with a file between them are separated by a blank line. If there is no text, a description
    of each file is added, since many rules and models need a text.
    """
    if not files_of([*blocks]):
        return text_of([*blocks])
    found: list[str | Block] = []
    for one in blocks:
        is_next = bool(found) and isinstance(found[-1], dict) and found[-1].get("type") == "text"
        append_block(found, one, "" if is_next else _GAP)
    return add_text(found)


def add_text(found: list[str | Block]) -> Content:
    """Return blocks as content. If there is no text, a description of each file is added."""
    if not files_of(found):
        return text_of(found)
    if text_of(found).strip():
        return found
    files = files_of(found)
    return [text_block("\n".join(f"[{describe_file(one)}]" for one in files)), *files]


def standard_block(block: Mapping[str, Any]) -> Block:
    """Return a content block of a provider, or an older one of LangChain, in the standard form."""
    found: Any = HumanMessage([dict(block)]).content_blocks[0]
    if found["type"] == "text-plain":
        return text_block(str(found.get("text") or ""))
    return dict(found)


def is_inline_file(block: object) -> bool:
    """Return whether a block is a file with its bytes in the standard form."""
    return (
        isinstance(block, dict)
        and block.get("type") in _FILES
        and isinstance(block.get("base64"), str)
        and isinstance(block.get("mime_type"), str)
    )


def keep_stored(content: Content) -> Content:
    """Return the parts of content that a log stores: texts, and files with their bytes."""
    if isinstance(content, str):
        return content
    kept: list[str | Block] = [
        one
        for one in content
        if isinstance(one, str) or one.get("type") == "text" or is_inline_file(one)
    ]
    return kept if files_of(kept) else text_of(content)


def with_digests(content: Content) -> Content:
    """Return content in which a SHA-256 digest replaces the bytes of each file, to compare it."""
    if isinstance(content, str):
        return content
    found: list[str | Block] = []
    for one in content:
        if isinstance(one, dict) and is_inline_file(one):
            kept = {name: part for name, part in one.items() if name != "base64"}
            one = kept | {"digest": sha256(bytes_of_file(one)).hexdigest()}
        found.append(one)
    return found


_IMAGE_TOKENS: Final = 1600
"""Estimated tokens of an image. OpenAI counts at most 1,445 in its tiles of 512 pixels, and
Anthropic about 1,600 for the largest image that it does not shrink."""

_BYTES_OF_TOKEN: Final = {"audio": 500, "file": 30}
"""Bytes of a file for each of its tokens. A second of speech is 10 to 32 tokens and at least 16 KB.
A page of a PDF is up to 3,000 tokens, and seldom less than 100 KB if it is scanned."""


def tokens_of_files(content: Content) -> int:
    """Estimate the tokens of the files in content: a constant for an image, by size for others."""
    return sum(
        _IMAGE_TOKENS
        if one["type"] == "image"
        else max(_IMAGE_TOKENS, size_of_file(one) // _BYTES_OF_TOKEN[one["type"]])
        for one in files_of(content)
    )


# Content that callers pass

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
"""Characters that texts do not contain. Colours of terminals begin with another one."""


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
