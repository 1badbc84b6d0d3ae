"""Bytes in a tool's result, as a model can read them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final

from langchain_core.messages import BaseMessage
from langchain_core.tools import BaseTool
from pydantic import BaseModel

from ...graphs.common.content import Block, describe_file, is_inline_file, text_block
from ...graphs.common.content_input import read_bytes

_BYTES: Final = (bytes, bytearray, memoryview)

_DEEPEST: Final = 50
"""Maximum depth of a result with bytes, in levels."""


def replace_bytes(tool: BaseTool, result: object) -> object:
    """Return a tool's result with files, texts or descriptions in place of its bytes.

    An artifact stays as it is. LangChain would write all other bytes as Python does.
    """
    has_artifact = tool.response_format == "content_and_artifact"
    if has_artifact and isinstance(result, tuple) and len(result) == 2:  # a pair
        return _make_content(result[0]), result[1]
    return _make_content(result)


def _make_content(result: object) -> object:
    content = _read_parts(result)
    if not isinstance(content, list):
        return content
    # LangChain writes content with audio as JSON. The log finds the type in the bytes.
    return [
        {**one, "type": "file"} if isinstance(one, dict) and one.get("type") == "audio" else one
        for one in content
    ]


def _read_parts(result: object) -> object:
    if isinstance(result, _BYTES):
        return [read_bytes(bytes(result))]
    if not _has_bytes(result, set()):
        return result
    if isinstance(result, list | tuple) and all(map(_is_part, result)):
        return [_make_part(one) for one in result]
    files: list[Block] = []
    text = json.dumps(_describe_bytes(result, files), ensure_ascii=False, default=str)
    return [text_block(text), *files]


def _is_part(value: object) -> bool:
    """Return whether a value can be a part of a message's content."""
    is_block = isinstance(value, Mapping) and "type" in value and not _has_bytes(value, set())
    return is_block or isinstance(value, (str, *_BYTES))


def _make_part(value: Any) -> Block:  # noqa: ANN401
    block = read_bytes(bytes(value)) if isinstance(value, _BYTES) else value
    # Texts of content are joined without a gap.
    block = block["text"] if isinstance(value, _BYTES) and block["type"] == "text" else block
    return text_block(f"{block}\n") if isinstance(block, str) else block


def _has_bytes(value: object, seen: set[int]) -> bool:
    """Return whether bytes are anywhere in a value, which may contain itself."""
    if isinstance(value, _BYTES):
        return True
    parts = _list_parts(value)
    if not parts or id(value) in seen:
        return False
    seen.add(id(value))
    return any(_has_bytes(one, seen) for one in parts)


def _list_parts(value: object) -> Sequence[Any]:
    """Return the values within a list, a dict or an object with fields."""
    found = _list_fields(value)
    if found is not None:
        return [*found.values()]
    return [*value] if isinstance(value, list | tuple | set | frozenset) else []


def _list_fields(value: object) -> Mapping[Any, Any] | None:
    if isinstance(value, BaseMessage):
        return None
    if isinstance(value, BaseModel):
        return vars(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    return value if isinstance(value, Mapping) else None


def _describe_bytes(value: object, files: list[Block], depth: int = 0) -> object:
    """Return a value with texts in place of bytes. Files are described, and added to a list."""
    if isinstance(value, _BYTES):
        block = read_bytes(bytes(value))
        if not is_inline_file(block):
            return block["text"]
        files.append(block)
        return f"[{describe_file(block)}]"
    parts = _list_parts(value)
    if not parts or depth == _DEEPEST:
        return value if not parts else "…"
    found = _list_fields(value)
    if found is not None:
        return {str(name): _describe_bytes(one, files, depth + 1) for name, one in found.items()}
    return [_describe_bytes(one, files, depth + 1) for one in parts]
