"""The serializer of stores, for plain data and a table of known types.

LangGraph's serializer imports and calls any object that a stored value names, so a store from an
unknown source could run code. This one writes the same format, but only creates types in its table.

It takes images and other files out of messages: a checkpoint contains only the digest of a file.
The bytes are stored once for each session, so that a session that is deleted takes no bytes from
its forks. Graphs never see digests, because the serializer finds the bytes when it reads a message.
"""

import dataclasses
import re
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from hashlib import sha256
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
)
from pathlib import Path, PosixPath, WindowsPath
from typing import Any, Final, Protocol
from uuid import UUID
from zoneinfo import ZoneInfo

import ormsgpack
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    SystemMessageChunk,
    ToolMessage,
    ToolMessageChunk,
)
from langgraph.checkpoint.serde.jsonplus import (
    EXT_CONSTRUCTOR_KW_ARGS,
    EXT_CONSTRUCTOR_POS_ARGS,
    EXT_CONSTRUCTOR_SINGLE_ARG,
    EXT_DELTA_SNAPSHOT,
    EXT_METHOD_SINGLE_ARG,
    EXT_PYDANTIC_V2,
    JsonPlusSerializer,
)
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Interrupt, Overwrite, Send, TimeoutPolicy

from ..common.addresses import hide_addresses
from ..common.content import Content, is_inline_file
from .errors import DamagedFileError, UnknownTypeError

SMALLEST: Final = 2048
"""Minimum length of the base64 of a file that is stored in the table. Shorter files stay in the
message."""

MARK: Final = b"duologue-file:"
"""The bytes in front of a digest in a stored value."""

_MARKED: Final = re.compile(re.escape(MARK) + rb"([0-9a-f]{64})")


class MessageFiles(Protocol):
    """The place of the files, as the serializer uses it."""

    def put(self, digest: str, data: bytes) -> None:
        """Store a file under its SHA-256 digest."""
        ...

    def get(self, digest: str) -> str:
        """Return a file in base64.

        Raises:
            DamagedFileError: The file is missing, or its bytes have changed.
        """
        ...


def _take_out_files(
    content: Content, files: MessageFiles, refer: Callable[[bytes], object]
) -> list[Any]:
    """Return content in which a reference to a stored file replaces the bytes of each file.

    Args:
        content: The content of a message.
        files: The place where the files are stored.
        refer: Returns the reference for the bytes that name a file.
    """
    shown: list[Any] = []
    for one in content:
        if isinstance(one, dict) and is_inline_file(one) and len(one["base64"]) >= SMALLEST:
            data = _decode(one["base64"])
            if data is not None:
                digest = sha256(data).hexdigest()
                files.put(digest, data)
                one = {**one, "base64": refer(MARK + digest.encode())}
        shown.append(one)
    return shown


def _take_out_of_lists(
    value: list[Any], files: MessageFiles, refer: Callable[[bytes], object]
) -> list[Any]:
    """Return content, or a list of contents, as `_take_out_files` does. Other lists do not change.

    LangGraph writes a person's answer in this form.
    """
    if type(value[0]) is list:
        return [
            _take_out_of_lists(one, files, refer) if type(one) is list and one else one
            for one in value
        ]
    return _take_out_files(value, files, refer) if type(value[0]) is dict else value


def _decode(text: str) -> bytes | None:
    """Return the bytes of base64. None if encoding them again does not return the same text."""
    try:
        data = b64decode(text, validate=True)
    except ValueError:
        return None
    return data if b64encode(data).decode() == text else None


def find_digests(written: bytes) -> Sequence[str]:
    """Return the digests of the files to which a stored value refers."""
    return [found.decode() for found in _MARKED.findall(written)] if MARK in written else ()


def encode_file(digest: str, data: object) -> str:
    """Return a stored file in base64, and raise an error if it is missing or has changed."""
    if data is None:
        raise DamagedFileError(f"the file {digest} of a message is missing")
    if not isinstance(data, bytes) or sha256(data).hexdigest() != digest:
        raise DamagedFileError(f"the file {digest} of a message is damaged")
    return b64encode(data).decode()


class PlainSerializer(JsonPlusSerializer):
    """A serializer of plain data, messages and LangGraph's own types, and nothing else.

    Objects of a user's types, such as a pydantic object in a tool's question, are written as plain
    data: a dict with the fields. They are therefore the same in every process that reads them.
    Values without a plain form are refused when they are written.

    Args:
        files: The place for the images and other files in messages. If None, they stay in the
            messages.
    """

    def __init__(self, files: MessageFiles | None = None) -> None:
        # For the case that a release of LangGraph reads by other methods than those below.
        super().__init__(pickle_fallback=False, allowed_msgpack_modules=None)
        self._files = files
        self._pack = _Writer(files).pack

    def with_msgpack_allowlist(
        self,
        extra_allowlist: Iterable[tuple[str, ...] | type],
    ) -> JsonPlusSerializer:
        """Return this serializer, because no graph may add types to it."""
        return self

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:  # noqa: ANN401
        """Serialize a value.

        Raises:
            TypeError: It has no plain form.
        """
        if obj is None:
            return "null", b""
        if isinstance(obj, bytes | bytearray):
            return type(obj).__name__, bytes(obj)
        if self._files is not None and type(obj) is list and obj:
            # Content, or a list of contents, that is not in a message.
            first = obj[0][0] if type(obj[0]) is list and obj[0] else obj[0]
            if type(first) is dict and "type" in first:
                obj = _take_out_of_lists(obj, self._files, _refer)
        return "msgpack", self._pack(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:  # noqa: ANN401
        """Deserialize a value.

        Raises:
            UnknownTypeError: It names a type that no session contains.
            ValueError: It is damaged.
        """
        kind, written = data
        match kind:
            case "null":
                return None
            case "bytes":
                return written
            case "bytearray":
                return bytearray(written)
            case "msgpack":
                return _Reader(self._files).read(written)
        raise UnknownTypeError(f"it has the type {kind!r:.40}, which no session contains")


def check_storable(value: object) -> None:
    """Raise an error if a value can't be stored and read back."""
    plain_copy(value)


def plain_copy(value: object) -> Any:  # noqa: ANN401
    """Return a value as a store returns it after it was stored.

    Raises:
        TypeError: It has no plain form.
    """
    serializer = PlainSerializer()
    return serializer.loads_typed(serializer.dumps_typed(value))


_OPTIONS: Final = (
    ormsgpack.OPT_NON_STR_KEYS
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_UUID
    | ormsgpack.OPT_REPLACE_SURROGATES
)


class _Writer:
    """A writer of values, which takes the files out of messages if there is a place for them."""

    def __init__(self, files: MessageFiles | None) -> None:
        self._files = files

    def pack(self, value: object) -> bytes:
        """Return the serialized form of a value."""
        return ormsgpack.packb(value, default=self._serialize, option=_OPTIONS)

    def _serialize(self, value: Any) -> Any:  # noqa: ANN401
        """Return the serialized form of a value that msgpack has no form for."""
        if isinstance(value, _DeltaSnapshot):
            return ormsgpack.Ext(EXT_DELTA_SNAPSHOT, self.pack(value.value))
        known = _FORMS.get(type(value))
        if known is None:
            return _plain(value)
        code, parts = known
        kind = type(value)
        if kind in (set, frozenset) and not all(map(_is_hashable_read, value)):
            return list(value)
        plain = parts(value)
        if code == EXT_PYDANTIC_V2 and self._files is not None and type(value.content) is list:
            plain["content"] = _take_out_files(value.content, self._files, _refer)
        # The only method in this format is the one that creates a datetime.
        method = ("fromisoformat",) if code == EXT_METHOD_SINGLE_ARG else ()
        return ormsgpack.Ext(code, self.pack((kind.__module__, kind.__name__, plain, *method)))


_EXT_FILE: Final = 68
"""The code of a reference to a file. LangGraph's codes are below 10."""


def _refer(reference: bytes) -> ormsgpack.Ext:
    return ormsgpack.Ext(_EXT_FILE, reference)


def _is_hashable_read(value: Any) -> bool:  # noqa: ANN401
    """Return whether a member of a set is still hashable when read; tuples and objects are not."""
    if isinstance(value, tuple | Interrupt | Overwrite | Send):
        return False
    if isinstance(value, frozenset):
        return all(map(_is_hashable_read, value))
    plain = type(value) in _FORMS or (isinstance(value, _SCALARS) and not isinstance(value, Enum))
    return plain or isinstance(_plain(value), _SCALARS)


_SCALARS: Final = (str, int, float, bytes, type(None))


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Return a user's object as plain data, without its inner objects."""
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    if isinstance(value, BaseException):
        return hide_addresses(repr(value))
    if isinstance(value, re.Pattern):
        return value.pattern
    # Models of pydantic 1 and 2 and its secrets, named tuples, numpy's arrays and numbers.
    for method in ("model_dump", "get_secret_value", "dict", "_asdict", "tolist"):
        dumps = getattr(value, method, None)
        if callable(dumps) and not isinstance(value, type):
            return dumps()
    raise TypeError(f"a {type(value).__name__} can't be stored as plain data")


def _fields(value: Any) -> dict[str, Any]:  # noqa: ANN401
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


_MESSAGES: Final = (
    *(AIMessage, HumanMessage, SystemMessage, ToolMessage, ChatMessage, FunctionMessage),
    *(AIMessageChunk, HumanMessageChunk, SystemMessageChunk, ToolMessageChunk, RemoveMessage),
)
_ADDRESSES: Final = (
    *(IPv4Address, IPv4Interface, IPv4Network),
    *(IPv6Address, IPv6Interface, IPv6Network),
)
_FORMS: Final[dict[type, tuple[int, Callable[[Any], Any]]]] = {
    **dict.fromkeys(_MESSAGES, (EXT_PYDANTIC_V2, lambda value: value.model_dump())),
    **dict.fromkeys((Interrupt, Overwrite, TimeoutPolicy), (EXT_CONSTRUCTOR_KW_ARGS, _fields)),
    Send: (
        EXT_CONSTRUCTOR_POS_ARGS,
        lambda value: (value.node, value.arg, *([value.timeout] if value.timeout else ())),
    ),
    **dict.fromkeys((set, frozenset, deque), (EXT_CONSTRUCTOR_SINGLE_ARG, tuple)),
    **dict.fromkeys((UUID, Decimal, *_ADDRESSES, ZoneInfo), (EXT_CONSTRUCTOR_SINGLE_ARG, str)),
    **dict.fromkeys((PosixPath, WindowsPath), (EXT_CONSTRUCTOR_POS_ARGS, lambda path: path.parts)),
    datetime: (EXT_METHOD_SINGLE_ARG, datetime.isoformat),
    date: (EXT_CONSTRUCTOR_POS_ARGS, lambda value: (value.year, value.month, value.day)),
    time: (
        EXT_CONSTRUCTOR_KW_ARGS,
        lambda value: {
            name: getattr(value, name)
            for name in ("hour", "minute", "second", "microsecond", "tzinfo", "fold")
        },
    ),
    timedelta: (
        EXT_CONSTRUCTOR_POS_ARGS,
        lambda value: (value.days, value.seconds, value.microseconds),
    ),
    timezone: (EXT_CONSTRUCTOR_POS_ARGS, lambda value: (value.utcoffset(None),)),
}
"""The serialized form of each known type; LangGraph reads these forms, too."""

_TYPES: Final[dict[tuple[str, str], Callable[..., Any]]] = {
    **{(kind.__module__, kind.__name__): kind for kind in _FORMS},
    (Send.__module__, Send.__name__): lambda node, arg, timeout=None: Send(
        node, arg, timeout=timeout
    ),
    # The module of these classes depends on Python's release, and the class on the operating
    # system.
    **{
        (module, name): Path
        for module in ("pathlib", "pathlib._local")
        for name in ("Path", "PosixPath", "WindowsPath")
    },
}
"""All types that are ever created, by their names in a stored value."""


class _Reader:
    """A reader of one value that keeps the first error.

    ormsgpack itself reports only that there was an error.
    """

    def __init__(self, files: MessageFiles | None) -> None:
        self._files = files
        self._failure: Exception | None = None

    def read(self, written: bytes) -> Any:  # noqa: ANN401
        """Read the value."""
        try:
            return self._unpack(written)
        except ValueError as error:
            raise self._failure or error from error

    def _unpack(self, written: bytes) -> Any:  # noqa: ANN401
        return ormsgpack.unpackb(
            written, ext_hook=self._read_extension, option=ormsgpack.OPT_NON_STR_KEYS
        )

    def _read_extension(self, code: int, written: bytes) -> Any:  # noqa: ANN401
        try:
            if code == _EXT_FILE and self._files is not None:
                marked = _MARKED.fullmatch(written)
                if marked is None:
                    raise DamagedFileError("a reference to a file in a message is damaged")
                return self._files.get(marked[1].decode())
            found = self._unpack(written)
            return _DeltaSnapshot(found) if code == EXT_DELTA_SNAPSHOT else _create(code, found)
        except Exception as error:
            self._failure = self._failure or error
            raise


def _create(code: int, found: Any) -> Any:  # noqa: ANN401
    """Create a value of a known type from its serialized parts."""
    if not isinstance(found, list) or len(found) < len(("module", "name", "parts")):
        raise UnknownTypeError(f"it contains a value of the unknown kind {code}")
    module, name, parts, *method = found
    make = _TYPES.get((str(module), str(name)))
    if make is datetime and method == ["fromisoformat"]:
        make, code = datetime.fromisoformat, EXT_CONSTRUCTOR_SINGLE_ARG
    if make is not None and code == EXT_CONSTRUCTOR_SINGLE_ARG:
        return make(parts)
    if make is not None and code == EXT_CONSTRUCTOR_POS_ARGS:
        return make(*parts)
    if make is not None and code in (EXT_CONSTRUCTOR_KW_ARGS, EXT_PYDANTIC_V2):
        return make(**parts)
    raise UnknownTypeError(
        f"it has the type {module!s:.80}.{name!s:.80}, which no session contains"
    )
