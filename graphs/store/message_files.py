"""The images and other files in stored messages.

A checkpoint contains only the digest of a file. The bytes are in a table, once for each session, so
that a session that is deleted takes no bytes from its forks. Graphs never see digests: the
serializer replaces the bytes when a message is written, and finds them again when it is read.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Any, Final, LiteralString, Protocol
from weakref import WeakValueDictionary

from ..common.content import Content, is_inline_file
from .errors import DamagedFileError

SMALLEST: Final = 2048
"""Minimum length of the base64 of a file that is stored in the table. Shorter files stay in the
message."""

FILES_TABLE: Final[LiteralString] = """CREATE TABLE IF NOT EXISTS duologue_files (
    digest TEXT NOT NULL, session TEXT NOT NULL, data {bytes} NOT NULL,
    PRIMARY KEY (digest, session))"""
PUT_FILE: Final[LiteralString] = (
    "INSERT INTO duologue_files (digest, session, data) VALUES (?, ?, ?) "
    "ON CONFLICT (digest, session) DO NOTHING"
)
DELETE_FILES: Final[LiteralString] = "DELETE FROM duologue_files WHERE session = ?"
FIND_FILE: Final[LiteralString] = "SELECT data FROM duologue_files WHERE digest = ? LIMIT 1"
FIND_FILES: Final[LiteralString] = (
    "SELECT DISTINCT ON (digest) digest, data FROM duologue_files WHERE digest = ANY(%s)"
)

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


def take_out_files(
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


def take_out_of_lists(
    value: list[Any], files: MessageFiles, refer: Callable[[bytes], object]
) -> list[Any]:
    """Return content, or a list of contents, as `take_out_files` does. Other lists do not change.

    LangGraph writes a person's answer in this form.
    """
    if type(value[0]) is list:
        return [
            take_out_of_lists(one, files, refer) if type(one) is list and one else one
            for one in value
        ]
    return take_out_files(value, files, refer) if type(value[0]) is dict else value


def _decode(text: str) -> bytes | None:
    """Return the bytes of base64. None if encoding them again does not return the same text."""
    try:
        data = b64decode(text, validate=True)
    except ValueError:
        return None
    return data if b64encode(data).decode() == text else None


def digest_of(reference: bytes) -> str:
    """Return the digest in a reference to a file."""
    found = _MARKED.fullmatch(reference)
    if found is None:
        raise DamagedFileError("a reference to a file in a message is damaged")
    return found[1].decode()


def encode_file(digest: str, data: object) -> str:
    """Return a stored file in base64, and raise an error if it is missing or has changed."""
    if data is None:
        raise DamagedFileError(f"the file {digest} of a message is missing")
    if not isinstance(data, bytes) or sha256(data).hexdigest() != digest:
        raise DamagedFileError(f"the file {digest} of a message is damaged")
    return b64encode(data).decode()


class MemoryFiles:
    """The files of the sessions in memory.

    Args:
        known: The files of all sessions: their bytes by digest, then by session.
        session: The session that is written. None if nothing is written.
    """

    def __init__(self, known: dict[str, dict[str, bytes]], session: str | None) -> None:
        self._known = known
        self._session = session

    def put(self, digest: str, data: bytes) -> None:
        """See `MessageFiles.put`."""
        if self._session is not None:
            self._known.setdefault(digest, {})[self._session] = data

    def get(self, digest: str) -> str:
        """See `MessageFiles.get`."""
        found = [*self._known.get(digest, {}).values()]
        return encode_file(digest, found[0] if found else None)

    def delete(self, session: str) -> None:
        """Delete the files of a session."""
        for digest in [*self._known]:
            found = self._known[digest]
            found.pop(session, None)
            if not found:
                self._known.pop(digest, None)


class SqlFiles:
    """The files of one saver on a SQL database.

    Args:
        find: Returns the bytes of a file by its digest, or None if it is missing.
    """

    def __init__(self, find: Callable[[str], bytes | None]) -> None:
        self._find = find
        self.new: dict[str, bytes] = {}
        """The files to write with the next statements, by digest."""
        self.written: set[str] = set()
        """The digests of the files that were written for the saver's session."""

    def put(self, digest: str, data: bytes) -> None:
        """See `MessageFiles.put`."""
        if digest not in self.written:
            self.new[digest] = data

    def get(self, digest: str) -> str:
        """See `MessageFiles.get`."""
        return encode_file(digest, self._find(digest))


class _Text(str):
    """A text that can be referenced weakly."""


class FetchedFiles(SqlFiles):
    """The files of a saver that reads asynchronously, so that it must fetch them beforehand.

    A file stays in memory while a message, or the rows of a query, contain it.
    """

    def __init__(self) -> None:
        super().__init__(lambda digest: None)
        self._fetched: WeakValueDictionary[str, _Text] = WeakValueDictionary()

    def get(self, digest: str) -> str:
        """See `MessageFiles.get`."""
        found = self._fetched.get(digest)
        return super().get(digest) if found is None else found

    def missing(self, rows: Iterable[object]) -> list[str]:
        """Return the digests of the files in rows that were not fetched yet."""
        return [digest for digest in {*_digests(rows)} if digest not in self._fetched]

    def keep(self, found: Iterable[tuple[str, bytes]]) -> list[object]:
        """Keep files that were fetched as long as the returned list is referenced."""
        kept: list[object] = []
        for digest, data in found:
            text = self._fetched[digest] = _Text(encode_file(digest, data))
            kept.append(text)
        return kept


def _digests(value: object) -> Iterator[str]:
    """Yield the digests in the binary values of rows."""
    if isinstance(value, bytes):
        if MARK in value:
            yield from (found.decode() for found in _MARKED.findall(value))
    elif isinstance(value, dict):
        yield from _digests(value.values())
    elif not isinstance(value, str | None) and isinstance(value, Iterable):
        for one in value:
            yield from _digests(one)
