"""A message of the log in a dump, as plain JSON, and the files of a dump, each of them once."""

from base64 import b64decode
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from typing import Annotated, Any, Final, cast
from uuid import uuid4

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, InvalidToolCall, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import ToolCall
from pydantic import Field, JsonValue, field_validator

from ...nodes.models.answers import why_unstorable
from ..common.content import Content, is_inline_file, replace_text, text_block
from ..common.content_input import keep_inline, read_content
from ..common.data import Data
from ..conversation.usage import CallUsage, select_response_metadata
from ..log.messages import (
    make_message,
    metadata,
    metadata_kwargs,
    number_of,
    pack_artifact,
    place_of,
    storable_content,
    unpack_artifact,
)
from ..log.metadata import AnyMetadata, original_metadata

_BYTES: Final = "base64"
_DIGEST: Final = "digest"


def take_files_out(dump: dict[str, Any]) -> dict[str, Any]:
    """Return a dump in which each file is once in ``files``, and blocks contain its digest."""
    files: dict[str, str] = {}
    found = _change_blocks(dump, partial(_take_bytes, files))
    return {**found, "files": files} if files else found


def _take_bytes(files: dict[str, str], block: dict[str, Any]) -> dict[str, Any]:
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
    files = dump.get("files") or {}
    if not isinstance(files, Mapping):
        raise ValueError("files: must be an object; dump the session again")
    for digest, data in files.items():
        _check(digest, data)
    return {**_change_blocks(dump, partial(_put_bytes, files)), "files": {}}


def _check(digest: object, data: object) -> None:
    try:
        found = sha256(b64decode(data, validate=True)).hexdigest()  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ValueError(f"files.{digest}: is not valid base64; dump the session again") from error
    if found != digest:
        raise ValueError(f"files.{digest}: does not have this digest; dump the session again")


def _change_blocks(dump: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a dump with a function applied to each content block. Values of a wrong type stay."""

    def change_message(message: object) -> object:
        return _change_items(message, "blocks", change)

    def change_step(step: object) -> object:
        return _change_items(step, "messages", change_message)

    return {**_change_items(dump, "steps", change_step)}


def _change_items(owner: Any, key: str, change: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    items = owner.get(key) if isinstance(owner, Mapping) else None
    if not isinstance(items, list | tuple):
        return owner
    return {**owner, key: [change(one) for one in items]}


def _put_bytes(files: Mapping[str, Any], block: Any) -> Any:  # noqa: ANN401
    if not isinstance(block, Mapping) or _DIGEST not in block:
        return block
    digest = block[_DIGEST]
    if digest not in files:
        raise ValueError(f"files: the file {digest!s:.80} is missing; dump the session again")
    rest = {name: one for name, one in block.items() if name != _DIGEST}
    return {**rest, _BYTES: files[digest]}


class DumpedCall(Data):
    """A tool call."""

    name: str
    """The name of the tool."""
    args: dict[str, JsonValue]
    """The arguments."""
    id: str | None = None
    """The id of the call. The call's result has the same id."""


class BrokenCall(Data):
    """A tool call whose arguments are not JSON."""

    name: str | None = None
    """The name of the tool. None if the model wrote no name."""
    args: str | None = None
    """The arguments, as the model wrote them. None if the model wrote no arguments."""
    id: str | None = None
    """The id of the call. None if it has no id."""
    error: str | None = None
    """The reason why the arguments could not be read. None if it is unknown."""


class Message(Data):
    """A message of the log."""

    id: str
    """The place of the message in the log, such as ``m0004``."""
    text: str
    """The text."""
    blocks: tuple[dict[str, JsonValue], ...] = ()
    """The content blocks of a message with images or other files: texts, and files in base64. Empty
    if the message is only text. In a dump, the digest of a file in `SessionDump.files` replaces its
    bytes.
    """
    tool_calls: tuple[DumpedCall, ...] = ()
    """The tool calls of the message."""
    invalid_tool_calls: tuple[BrokenCall, ...] = ()
    """Tool calls whose arguments are not JSON."""
    call_id: str | None = None
    """The id of the tool call whose result this message is. None if the message is not a tool's
    result.
    """
    failed: bool = False
    """Whether the tool call failed, if the message is a tool's result."""
    artifact: JsonValue = None
    """The artifact of the tool call. None if there is none, or if it is not JSON."""
    packed_artifact: str | None = None
    """An artifact that is not JSON, such as bytes: msgpack, as a store writes it, in base64. None
    if there is none.
    """
    message_id: str | None = None
    """The unique id of the message. If None, a new id is made."""
    metadata: Annotated[AnyMetadata, Field(discriminator="kind")]
    """The kind of the message, its speaker, its audience, and the rest of its metadata."""
    usage: CallUsage | None = None
    """The token usage of the model call that wrote the message, in LangChain's format. None if
    unknown.
    """
    model: dict[str, JsonValue] = Field(default_factory=dict)
    """The response metadata that the model's client returned, such as the model's name."""

    @field_validator("packed_artifact")
    @classmethod
    def _check_packed_artifact(cls, packed: str | None) -> str | None:
        if packed is not None:
            try:
                unpack_artifact(packed)
            except Exception as error:
                raise ValueError(f"can't be read: {error}; remove it") from error
        return packed

    @field_validator("blocks")
    @classmethod
    def _check_blocks(
        cls, blocks: tuple[dict[str, JsonValue], ...]
    ) -> tuple[dict[str, JsonValue], ...]:
        return _blocks(read_content(blocks, "content") if blocks else "")

    @property
    def content(self) -> Content:
        """The text, or the content blocks with this text."""
        return replace_text([*self.blocks], self.text) if self.blocks else self.text

    def restore(self) -> AnyMessage:
        """Return the message for the log."""
        extra = metadata_kwargs(self.metadata, number_of(self.id))
        if self.call_id is not None:
            return ToolMessage(
                storable_content(self.content),
                id=self.message_id or str(uuid4()),
                tool_call_id=self.call_id,
                status="error" if self.failed else "success",
                artifact=self.artifact
                if self.packed_artifact is None
                else unpack_artifact(self.packed_artifact),
                additional_kwargs=extra,
            )
        # A removed message keeps its type.
        made = make_message(
            number_of(self.id),
            self.content,
            original_metadata(self.metadata),
            answer=AIMessage(
                "",
                id=self.message_id,
                usage_metadata=cast("UsageMetadata | None", self.usage),
                response_metadata=self.model,
            ),
            tool_calls=[
                ToolCall(name=call.name, args=dict(call.args), id=call.id, type="tool_call")
                for call in self.tool_calls
            ],
            invalid_tool_calls=[
                InvalidToolCall(
                    name=call.name,
                    args=call.args,
                    id=call.id,
                    error=call.error,
                    type="invalid_tool_call",
                )
                for call in self.invalid_tool_calls
            ],
        )
        return made.model_copy(update={"additional_kwargs": extra})


def dump_message(message: BaseMessage) -> Message:
    """Return a message of the log in the format of a dump."""
    known: dict[str, Any] = {}
    if isinstance(message, AIMessage):
        known = {
            "usage": message.usage_metadata,
            "model": select_response_metadata(message),
            "tool_calls": [
                DumpedCall(name=call["name"], args=call["args"], id=call["id"])
                for call in message.tool_calls
            ],
            "invalid_tool_calls": [
                BrokenCall(name=call["name"], args=call["args"], id=call["id"], error=call["error"])
                for call in message.invalid_tool_calls
            ],
        }
    if isinstance(message, ToolMessage):
        is_json = why_unstorable({"artifact": message.artifact}) is None
        known = {
            "call_id": message.tool_call_id,
            "failed": message.status == "error",
            "artifact": message.artifact if is_json else None,
            "packed_artifact": None if is_json else pack_artifact(message.artifact),
        }
    return Message(
        id=place_of(message),
        message_id=message.id,
        text=message.text,
        # A client may have written any blocks.
        blocks=() if isinstance(message.content, str) else _blocks(keep_inline(message.content)),
        metadata=metadata(message),
        **known,
    )


def _blocks(content: Content) -> tuple[dict[str, JsonValue], ...]:
    if isinstance(content, str):
        return ()
    return tuple(text_block(one) if isinstance(one, str) else one for one in content)
