"""Reading files that hold data, with one clear error for what is wrong."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .errors import SpecError


def read_file(path: Path, parse: Callable[[str], Any]) -> Any:  # noqa: ANN401
    """Read a file in UTF-8 whose ending names its format."""
    try:
        # Windows' own tools begin such a file with a mark, which is no part of the text.
        return parse(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise SpecError(f"{path}: can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: is not UTF-8 text") from error
    except RecursionError as error:
        raise SpecError(f"{path}: is nested too deep to be read") from error
    except ValueError as error:
        raise SpecError(f"{path}: is not valid {path.suffix[1:].upper()}: {error}") from error


def read_fields(path: Path, what: str) -> dict[str, Any]:
    """Read the fields of something out of a TOML or JSON file."""
    readers: dict[str, Callable[[str], Any]] = {".toml": tomllib.loads, ".json": json.loads}
    if path.suffix.lower() not in readers:
        raise SpecError(f"{path}: a {what} is read from a .toml or .json file")
    data = read_file(path, readers[path.suffix.lower()])
    if not isinstance(data, dict):
        raise SpecError(f"{path}: must hold one object with the {what}'s fields")
    return data
