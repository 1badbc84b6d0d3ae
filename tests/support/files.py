"""Small images and files, as bytes and as content blocks. No tests here."""

from base64 import b64encode
from typing import Any

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20
"""A file of 5 KB that begins as a PNG image does."""
PDF = b"%PDF-1.4\n" + b"x" * 3000


def block_of(data: bytes, mime_type: str = "image/png", kind: str = "image") -> dict[str, Any]:
    """Return a content block with the bytes of a file."""
    return {"type": kind, "base64": b64encode(data).decode(), "mime_type": mime_type}
