"""Functions that read files and JSON with one clear error, and write files as a whole."""

import json
import os
import shutil
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO, Final

from pydantic_core import from_json
from typing_extensions import Buffer

from .errors import SpecError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def read_file(path: Path, parse: Callable[[str], Any]) -> Any:  # noqa: ANN401
    """Read and parse a UTF-8 file. Its suffix names the format in an error.

    Raises:
        SpecError: The file can't be read or parsed.
    """
    try:
        # Tools of Windows begin such a file with a byte order mark, which is not part of the text.
        return parse(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise SpecError(f"{path}: can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: is not UTF-8 text; save it as UTF-8") from error
    except RecursionError as error:
        raise SpecError(f"{path}: is nested too deeply; use fewer levels") from error
    except ValueError as error:
        raise SpecError(f"{path}: is not valid {path.suffix[1:].upper()}: {error}") from error


def read_fields(path: Path, what: str) -> dict[str, Any]:
    """Read the fields of an object from a TOML or JSON file.

    Raises:
        SpecError: The file can't be read, or does not contain an object.
    """
    readers: dict[str, Callable[[str], Any]] = {".toml": tomllib.loads, ".json": json.loads}
    if path.suffix.lower() not in readers:
        near = [f"{path}{one}" for one in readers if Path(f"{path}{one}").is_file()]
        remedy = f"; did you mean {near[0]!r}?" if near else ""
        raise SpecError(f"{path}: must be a .toml or .json file with a {what}{remedy}")
    data = read_file(path, readers[path.suffix.lower()])
    if not isinstance(data, dict):
        raise SpecError(f"{path}: must contain one object with the {what}'s fields")
    return data


_MOST_OUTSIDE: Final = 200_000
"""Maximum number of bytes outside the strings of JSON, and of quotation marks around them."""


def parse_json(text: str | bytes) -> Any:  # noqa: ANN401  # any JSON
    """Parse JSON that clients and people write, in UTF-8, if that takes a short time only.

    Parsing keeps a server's other clients waiting, also in a thread. Its time depends less on the
    length of a text than on the number of values: 2 MB of empty lists take seconds, one string
    2 ms.

    Raises:
        ValueError: It is not valid, has a lone surrogate in a string, is nested more than 200
            levels deep, or contains too many values.
    """
    given = text.encode() if isinstance(text, str) else text
    # Without escaped quotation marks, values and strings alternate between the quotation marks.
    plain = given.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in given else given
    is_long = plain.count(b'"') > _MOST_OUTSIDE
    if is_long or sum(map(len, plain.split(b'"')[::2])) > _MOST_OUTSIDE:
        raise ValueError(f"more than {_MOST_OUTSIDE:,} bytes outside its strings")
    return from_json(given)


class NewFile:
    """A file that is written under a temporary name and moved to its path when it is complete.

    Its temporary file is locked, so that those of killed processes are recognized and removed. That
    needs Linux or macOS, and a file system with `flock` locks.
    """

    def __init__(self, path: Path, place: Path, draft: Path, file: BinaryIO) -> None:
        self.path = path
        self._target = place
        self._draft = draft
        self._file = file
        self._hash = sha256()

    @classmethod
    def begin(cls, path: Path) -> "NewFile":
        """Start to write a file.

        Raises:
            SpecError: It can't be written.
        """
        with _report_unwritable(path):
            place = _resolve(path)
            remove_abandoned_files(place.parent)
            draft, opened = _create_draft(place.parent)
            if place.exists():
                with suppress(OSError):
                    shutil.copymode(place, draft)
            return cls(path, place, draft, os.fdopen(opened, "wb"))

    @property
    def sha256(self) -> str:
        """Return the hash of the content so far."""
        return self._hash.hexdigest()

    @property
    def bytes(self) -> int:
        """Return the length so far, in bytes."""
        return self._file.tell()

    def write(self, content: str | Buffer) -> None:
        """Append text or binary data."""
        data = content.encode() if isinstance(content, str) else content
        self._hash.update(data)
        with _report_unwritable(self.path):
            self._file.write(data)

    def put(self) -> None:
        """Move the complete file to its path."""
        with _report_unwritable(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
            if fcntl is None:
                # Windows can't move an open file.
                self._file.close()
            self._draft.replace(self._target)
            self._file.close()

    def drop(self) -> None:
        """Delete the temporary file if it was not moved to its path."""
        # On a full disk, closing fails, too, and the earlier error is the one to report.
        with suppress(OSError):
            self._draft.unlink(missing_ok=True)
        with suppress(OSError):
            self._file.close()


def make_folders(path: Path) -> None:
    """Make the missing folders above a file.

    Raises:
        SpecError: They can't be made.
    """
    with _report_unwritable(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise OSError("a part of its path is a file, or a link to nothing") from error


def check_writable(path: Path) -> None:
    """Check that a file can be written, after the missing folders above it are made.

    Raises:
        SpecError: It can't be written.
    """
    with _report_unwritable(path):
        if is_device(path):
            return
        folder = next(one for one in _resolve(path).parents if one.exists())
        draft, opened = _create_draft(folder)
        # In this order, since Windows can't delete an open file. Another program may be quicker.
        os.close(opened)
        draft.unlink(missing_ok=True)


def is_device(path: Path) -> bool:
    """Return whether a path is a device or a pipe, such as ``/dev/null``."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _resolve(path: Path) -> Path:
    """Return the path of a file. The target of a link is written, and the link stays."""
    place = path.resolve()
    if place.exists() and not place.is_file():
        raise SpecError(f"{path}: is not a regular file; choose another path")
    return place


def _create_draft(folder: Path) -> tuple[Path, int]:
    return create_locked_file(lambda: folder / f".duologue-{token_hex(8)}.tmp")


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file that is complete or stays as it was. Devices and pipes are written directly.

    Raises:
        SpecError: It can't be written.
    """
    with _report_unwritable(path):
        # A model may have written lone surrogates, which have no encoding.
        data = content.encode(errors="replace") if isinstance(content, str) else content
        if is_device(path):
            path.write_bytes(data)
            return
    file = NewFile.begin(path)
    try:
        file.write(data)
        file.put()
    finally:
        file.drop()


def remove_abandoned_files(folder: Path) -> None:
    """Remove the temporary files that killed processes have left in a folder."""
    if fcntl is None:
        return
    for draft in folder.glob(".duologue-*.tmp"):
        with suppress(OSError):
            # Opening a pipe must not block.
            opened = os.open(draft, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if _lock(opened):
                    draft.unlink()
            finally:
                os.close(opened)


def create_locked_file(new_path: Callable[[], Path], mode: int = 0o666) -> tuple[Path, int]:
    """Create a file that is locked until its descriptor is closed, if files can be locked here.

    Args:
        new_path: Returns a path without a file.
        mode: The permissions of the file, before the umask is applied.

    Returns:
        The path and the descriptor.
    """
    while True:
        path = new_path()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        # Another process may have removed it before it was locked.
        if not _lock(descriptor, waits=True) or os.fstat(descriptor).st_nlink:
            return path, descriptor
        os.close(descriptor)


def _lock(descriptor: int, *, waits: bool = False) -> bool:
    """Lock a file until it is closed. Return False if it is locked, or can't be locked here."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


@contextmanager
def _report_unwritable(path: Path) -> Iterator[None]:
    try:
        yield
    except SpecError:
        raise
    except OSError as error:
        raise SpecError(f"{path}: can't be written: {error.strerror or error}") from error
    except RuntimeError as error:
        # Python raises it for a link that leads to itself.
        raise SpecError(f"{path}: can't be written: {error}") from error
