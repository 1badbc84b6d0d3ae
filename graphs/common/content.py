"""The content of messages: text, and images, audio and other files as content blocks.

A message without files has a plain text as its content. Otherwise the content is a list of
LangChain's standard content blocks: text, and files whose bytes are in the block, in base64.

The functions are pure. `content_input` reads content that callers pass.
"""

from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any, Final, TypeAlias

from langchain_core.messages import HumanMessage

from .sanitize import escape_invisible

Block: TypeAlias = dict[str, Any]
"""One of LangChain's content blocks."""

Content: TypeAlias = str | list[str | dict[str, Any]]
"""The content of a message, in LangChain's type."""

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
