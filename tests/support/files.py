"""Small images and files: their bytes, and their content blocks in messages. No tests here."""

from base64 import b64encode
from typing import Any

from langchain_core.messages import BaseMessage

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20
"""A file of 5 KB that begins as a PNG image does."""
PDF = b"%PDF-1.4\n" + b"x" * 3000


def block_of(data: bytes, mime_type: str = "image/png", kind: str = "image") -> dict[str, Any]:
    """Return a content block with the bytes of a file."""
    return {"type": kind, "base64": b64encode(data).decode(), "mime_type": mime_type}


def files_of(message: BaseMessage) -> list[dict[str, Any]]:
    """Return the content blocks of a message that are files."""
    blocks = (one for one in message.content if isinstance(one, dict))
    return [one for one in blocks if one["type"] != "text"]
