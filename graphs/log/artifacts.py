"""The parts of a tool's result: its text, and its artifact for programs and people.

An artifact is the second part of a result in LangChain's format ``content_and_artifact``. No model
and no speaker receives it.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any, Final

from langchain_core.messages import BaseMessage, ToolMessage

from ..common.content import Block, files_of, text_of
from ..common.content_input import keep_inline
from ..common.sanitize import excerpt
from ..common.validation import check_depth
from ..store.serializer import PlainSerializer, plain_copy
from .metadata import CallOutcome, MessageMetadata

_DEEPEST: Final = 100
"""Maximum depth of an artifact, in levels. Logs of about 200 levels can't be read."""


def parts_of_result(message: ToolMessage) -> tuple[str, list[Block]]:
    """Return a tool's result as text, and its images and other files with their bytes.

    A line of text replaces each part that is not accepted, such as an address. It is never opened.
    """
    content = message.content
    if isinstance(content, str):
        return content, []
    kept = keep_inline(content)
    return text_of(kept), files_of(kept)


def store_artifact(tool: str, artifact: object) -> tuple[Any, str | None]:
    """Return an artifact as a store returns it, or None and the reason why it can't be stored."""
    if artifact is None:
        return None, None
    try:
        # In a list, so that all values take the same way as within a message.
        (plain,) = plain_copy([artifact])
        check_depth(plain, "it ", _DEEPEST)
    # The artifact may be an object of any type, whose methods may raise any error.
    except Exception as error:
        return None, (
            f"The artifact of {tool} was not stored: {excerpt(str(error))}; return plain data, "
            "such as a dict, a list, text or bytes"
        )
    return plain, None


def describe_artifact(message: BaseMessage, about: MessageMetadata) -> Iterator[str]:
    """Yield a remark about the artifact of a tool's result: its type and size, or its problem."""
    if isinstance(about, CallOutcome) and about.artifact_problem is not None:
        yield about.artifact_problem
    artifact = message.artifact if isinstance(message, ToolMessage) else None
    if artifact is not None:
        size = len(artifact if isinstance(artifact, bytes) else _pack(artifact))
        shown = f"{size:,} bytes" if size < 10_000 else f"{size >> 10:,} KiB"
        yield f"Artifact: {type(artifact).__name__}, {shown}"


def pack_artifact(artifact: object) -> str:
    """Return an artifact as text, from which `unpack_artifact` returns the same value."""
    return b64encode(_pack(artifact)).decode()


def unpack_artifact(packed: str) -> Any:  # noqa: ANN401
    """Return the artifact that `pack_artifact` has packed.

    Raises:
        ValueError: The text is not a packed artifact.
    """
    (artifact,) = PlainSerializer().loads_typed(("msgpack", b64decode(packed, validate=True)))
    return artifact


def _pack(artifact: object) -> bytes:
    return PlainSerializer().dumps_typed([artifact])[1]
