"""A conversation, and the rows of values with which its fields are filled in."""

from collections.abc import Callable, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from ..common.data import Text, by_kind
from ..common.errors import SpecError, suggest_near_or_all
from ..common.files import read_fields
from ..conversation.conversation import Conversation, Form
from ..conversation.conversation_options import (
    BY_WORD,
    FilledIn,
    build_model,
    mark_unset,
    merge_changes,
    remove_marks,
)
from ..kinds.load import forms_by_kind, load_conversation
from .spec import LABELS, Batch, FieldPath, check_apart, json_types, read_paths, write_path
from .values import LEFT, Axis, Value, canonical_json, read_axis

_NOTHING = object()

PLAIN_TEXTS: Final = frozenset(
    {
        *("task", "title", "message", "first_line", "shift_content", "system_prompt"),
        *("user_prompt", "assistant_prompt", "coder_prompt", "writer_prompt", "critic_prompt"),
    }
)
"""Fields whose text can't contradict another field: if one text fits, every text fits."""

_TEXT: Final[TypeAdapter[str]] = TypeAdapter(Text)


@dataclass(frozen=True)
class Base:
    """The conversation of a batch as data, in which the values of a cell can be filled in."""

    data: Mapping[str, Any]
    """The fields. In the fields of a `Conversation`, defaults are marked."""
    is_made: bool
    """Whether the caller passed a `Conversation` object."""
    form: type[Form] | None = None
    """The short form of the conversation, or None."""

    @classmethod
    def of(cls, given: Mapping[str, Any] | str | Conversation) -> "Base":
        """Read the fields of a conversation.

        Raises:
            SpecError: The file of the conversation cannot be read.
        """
        if isinstance(given, Conversation):
            return cls(mark_unset(given), is_made=True)
        if isinstance(given, str):
            try:
                given = read_fields(Path(given), "conversation")
            except SpecError as error:
                raise SpecError(f"conversation: {error}") from error
        kind = given.get("kind")
        form = forms_by_kind().get(kind) if isinstance(kind, str) else None
        return cls(given, is_made=False, form=form)

    def place(self, path: FieldPath) -> FieldPath:
        """Return the place in the data that a path names. It differs for a short form's speakers.

        Raises:
            SpecError: The speaker does not exist.
        """
        roles = self.form.roles if self.form else {}
        if not roles or path[0] != "speakers" or len(path) == 1:
            return path
        names = [self._name(role, field) for role, field in roles.items()]
        return ([*roles][_index(names, path[1], "speakers")], *path[2:])

    def _name(self, role: str, field: str) -> object:
        """Return the name of a short form's speaker, if it does not vary."""
        given = self.data.get(role)
        named = _name_in(given, given)
        default = self.form.model_fields[field].default if self.form else None
        return named or self.data.get(field) or default

    def types(self, place: FieldPath) -> AbstractSet[str]:
        """Return the JSON types of the values at a place in the data. Empty if they are unknown."""
        types = json_types(self.form, place) if self.form else frozenset()
        if not types and self.form and place[0] in self.form.roles:
            place = ("speakers", *place)
        return types or json_types(Conversation, place)

    def open_place(self, place: FieldPath) -> "Base":
        """Return the base with the fields that lead to a place as dicts, made once for all cells.

        Raises:
            SpecError: A list on the way has no such item.
        """
        return replace(self, data=self._put(self.data, place, _NOTHING, ()))

    def fill(self, values: Mapping[FieldPath, Any]) -> Mapping[str, Any]:
        """Return the data with values filled in. A table changes only the fields that it names."""
        data: Any = self.data
        for place, value in values.items():
            data = self._put(data, place, value, ())
        found: Mapping[str, Any] = data
        return found

    def _put(self, into: Any, place: FieldPath, value: object, at: FieldPath) -> Any:  # noqa: ANN401
        """Return data in which the value at a place is replaced."""
        if not place:
            return into if value is _NOTHING else value
        name, *rest = place
        items = into.value if isinstance(into, FilledIn) else into
        if isinstance(items, list | tuple):
            found = [FilledIn(one) for one in items] if isinstance(into, FilledIn) else [*items]
            index = _index([_name_in(one) for one in items], name, write_path(at))
            found[index] = self._put(found[index], tuple(rest), value, (*at, name))
            return found
        fields = self._fields(into, at)
        if value is _NOTHING and (not rest or fields.get(name) is None):
            return fields
        if not rest:
            fields = merge_changes(fields, {name: value})
        else:
            fields = {**fields, name: self._put(fields.get(name), tuple(rest), value, (*at, name))}
        if name == "system_prompt" and not rest:
            # A short prompt for a tiny model repeats the old prompt, so it must go as well.
            fields.pop("small_model_prompt", None)
        return fields

    def _fields(self, of: object, at: FieldPath) -> dict[str, Any]:
        """Return the fields of a nested value, which the caller may have written as one word."""
        if isinstance(of, str) and at:
            return dict(self._read_word(of, at))
        if self.is_made or not isinstance(of, BaseModel):
            return mark_unset(of)
        fields: dict[str, Any] = remove_marks(mark_unset(of))
        return fields

    def _read_word(self, word: str, at: FieldPath) -> Any:  # noqa: ANN401
        if len(at) == 1 and at[0] in BY_WORD:
            return BY_WORD[at[0]](word)
        if len(at) == 1 and self.form and at[0] in self.form.roles:
            return {"name": word}
        return {"text": word} if at[0] == "prompts" else by_kind(word)


def conversation_of(data: Mapping[str, Any], *, is_made: bool) -> Conversation:
    """Build a conversation from its data, with or without marked defaults.

    Raises:
        SpecError: The conversation is not valid; the message names the field.
    """
    return build_model(Conversation, data) if is_made else load_conversation(data)


def _name_in(given: object, otherwise: object = None) -> object:
    """Return the name in the fields of a speaker, or another value if it has no such field."""
    value = given.value if isinstance(given, FilledIn) else given
    return value.get("name") if isinstance(value, Mapping) else getattr(value, "name", otherwise)


def _index(names: Sequence[object], name: str, where: str) -> int:
    """Return the index of the item with this name, or else with this number, counted from 0."""
    if name in names:
        return names.index(name)
    if name.isdecimal() and int(name) < len(names):
        return int(name)
    known = [one for one in names if isinstance(one, str)]
    if name.isdecimal() or not known:
        raise SpecError(
            f"{where}: there is no item {name}; the list has {len(names)} items, and the first is 0"
        )
    raise SpecError(f"{where}: no speaker is called {name!r}{suggest_near_or_all(name, known)}")


def set_values(value: object) -> JsonValue:
    """Return the values that the caller set, as JSON."""
    match value:
        case BaseModel():
            found: JsonValue = value.model_dump(mode="json", exclude_unset=True, fallback=_name)
            return found
        case Mapping():
            set_ = {str(name): one for name, one in value.items() if not isinstance(one, FilledIn)}
            return {name: set_values(one) for name, one in set_.items()}
        case list() | tuple():
            return [set_values(one) for one in value if not isinstance(one, FilledIn)]
        case _:
            plain_value: JsonValue = to_jsonable_python(value, fallback=_name)
            return plain_value


def _name(thing: object) -> str:
    """Return the name of a Python object that is not data."""
    return str(getattr(thing, "__name__", None) or getattr(thing, "name", None) or type(thing))


T = TypeVar("T")


@dataclass(frozen=True)
class Grid:
    """A conversation and its axes. A combination consists of one row of each axis."""

    base: Base
    """The conversation."""
    axes: tuple[Axis, ...]
    """The fields that vary, with their values."""
    places: Mapping[str, FieldPath]
    """The place in the conversation's data for each path. Labels are not included."""

    @classmethod
    def of(cls, batch: Batch) -> "Grid":
        """Read the conversation and the fields that vary from a batch.

        Raises:
            SpecError: A file cannot be read, a row does not fit, a field is given twice, or two
                rows are the same; the message names the field and the row.
        """
        base = Base.of(batch.conversation)
        axes = tuple(map(Axis.of, batch.vary))
        places = _places(base, axes)
        for axis in axes:
            for path in axis.paths:
                base = (
                    _find_in_axis(axis, base.open_place, places[path]) if path in places else base
                )
        grid = cls(base, axes, places)
        read = (read_axis(axis, batch.vary[axis.key], grid.text_types) for axis in axes)
        grid = replace(grid, axes=tuple(read))
        for axis in grid.axes:
            axis.check_distinct()
        return grid

    @property
    def combinations(self) -> int:
        """Number of combinations of values."""
        return prod(len(axis.rows) for axis in self.axes)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the fields that vary, including labels."""
        return tuple(path for axis in self.axes for path in axis.paths)

    def rows(self, combination: int) -> list[int]:
        """Return the row of each axis for a combination, all counted from 0."""
        found = []
        for axis in reversed(self.axes):
            combination, row = divmod(combination, len(axis.rows))
            found.append(row)
        return found[::-1]

    def varied(self, rows: Sequence[int]) -> dict[str, JsonValue]:
        """Return the values of a row of each axis, by path."""
        found: dict[str, JsonValue] = {}
        for axis, row in zip(self.axes, rows, strict=True):
            found |= axis.varied(row)
        return found

    def fill(self, varied: Mapping[str, JsonValue]) -> Mapping[str, Any]:
        """Return the conversation's data with values filled in."""
        return self.base.fill(
            {place: varied[path] for path, place in self.places.items() if path in varied}
        )

    def conversation(self, rows: Sequence[int]) -> Conversation:
        """Build the conversation for a row of each axis.

        Raises:
            SpecError: The values do not fit together; the message names the field.
        """
        return conversation_of(self.fill(self.varied(rows)), is_made=self.base.is_made)

    def check(self) -> None:
        """Check each row in the conversation with the first row of every other axis.

        Raises:
            SpecError: A row does not fit; the message names the field and the row.
        """
        first = [0] * len(self.axes)
        try:
            self.conversation(first)
        except SpecError as error:
            raise self._blame_row(error) from error
        for place, axis in enumerate(self.axes):
            # Rows that differ only in labels and plain texts are all valid, or none of them is.
            columns = {
                column: self._is_plain_text(self.places[path])
                for column, path in enumerate(axis.paths)
                if path in self.places
            }
            different: dict[tuple[str, ...], int] = {}
            for number, row in enumerate(axis.rows):
                key = tuple(_describe(row[column], is_text) for column, is_text in columns.items())
                different.setdefault(key, number)
            for number in [*different.values()][1:]:
                try:
                    self.conversation([*first[:place], number, *first[place + 1 :]])
                except SpecError as error:
                    raise axis.error(_strip_path(error, axis.paths), number) from error

    def _is_plain_text(self, place: FieldPath) -> bool:
        """Return whether a place in the data is one of the `PLAIN_TEXTS`."""
        *parents, name = place
        roles = self.base.form.roles if self.base.form else {}
        match parents:
            case [] | ["opening"] | ["speakers", _]:
                return name in PLAIN_TEXTS
            case [parent]:
                return parent in roles and name in PLAIN_TEXTS
            case _:
                return False

    def _blame_row(self, error: SpecError) -> SpecError:
        """Return the error for the first row that caused it, or else for the conversation."""
        field = str(error).partition(": ")[0]
        for axis in self.axes:
            if any(f"{path}.".startswith(f"{field}.") for path in axis.paths):
                return axis.error(_strip_path(error, axis.paths), 0)
        rows = ", ".join(f"{axis.place(0)} of vary.{axis.key}" for axis in self.axes)
        told = "" if not rows or self._fails_anyway(error) else f" (with {rows})"
        return SpecError(f"conversation: {error}{told}")

    def _fails_anyway(self, error: SpecError) -> bool:
        """Return whether the last rows fail with the same error, so that no row is to blame."""
        last = [len(axis.rows) - 1 for axis in self.axes]
        try:
            self.conversation(last)
        except SpecError as other:
            return any(last) and str(other) == str(error)
        return False

    def text_types(self, path: str) -> AbstractSet[str]:
        """Return the JSON types as which texts of a file are read. Empty if they stay texts."""
        place = self.places.get(path)
        if place is None or self._is_plain_text(place):
            return frozenset()
        types = self.base.types(place)
        return frozenset() if "string" in types else types


def _places(base: Base, axes: Sequence[Axis]) -> dict[str, FieldPath]:
    """Return the place in the data for each path."""
    found: dict[str, FieldPath] = {}
    for axis in axes:
        for text, path in zip(axis.paths, read_paths(axis.key), strict=True):
            if path[0] != LABELS:
                found[text] = _find_in_axis(axis, base.place, path)
            elif len(path) != 2:
                raise axis.error(f"{text} is not a label's path; write {LABELS}.NAME")
    try:
        check_apart([(place, text) for text, place in found.items()])
    except ValueError as error:
        raise SpecError(str(error)) from error
    # A new prompt removes the short prompt for tiny models, unless the short prompt varies as well.
    # So prompts are filled in first.
    return dict(sorted(found.items(), key=lambda pair: pair[1][-1] != "system_prompt"))


def _describe(value: Value, is_text: bool) -> str:
    """Return a text that differs for values that are not alike.

    If `is_text`, all texts are alike.
    """
    if value is LEFT:
        return ""
    return "any" if is_text and _is_text(value) else canonical_json(value)


def _is_text(value: Value) -> bool:
    """Return whether a value fits a field for text."""
    try:
        _TEXT.validate_python(value)
    except ValidationError:
        return False
    return True


def _find_in_axis(axis: Axis, find: Callable[[FieldPath], T], path: FieldPath) -> T:
    """Call `find` with a path, and turn its error into an error of the axis."""
    try:
        return find(path)
    except SpecError as error:
        raise axis.error(str(error)) from error


def _strip_path(error: SpecError, paths: Sequence[str]) -> str:
    """Return the text of an error without a path that the caller adds."""
    text = str(error)
    named = (path for path in paths if text.startswith(f"{path}: "))
    return text.removeprefix(f"{next(named, '')}: ")
