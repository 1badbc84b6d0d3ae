"""Filling values into a conversation, by the paths of its fields. Pure functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any

from pydantic import BaseModel, JsonValue
from pydantic_core import to_jsonable_python

from ...common.data import by_kind
from ...common.errors import SpecError
from ...common.files import read_fields
from ...common.validation import near_or_all
from ...ends.end_chat import end_chat_fields
from ...kinds.load import forms_by_kind, load_conversation
from ...spec.changes.laid_over import laid_over
from ...spec.changes.own import Own, made, marked, plain
from ...spec.conversation import Conversation, Form
from ...spec.sandbox import by_level
from ..paths import Path, written

_NOTHING = object()

_BY_WORD = {"end_chat": end_chat_fields, "sandbox": by_level}
"""Fields of which a bare word is something else than a kind."""


@dataclass(frozen=True)
class Base:
    """A conversation into which values are filled."""

    data: Mapping[str, Any]
    """Its fields; those of a `Conversation` are marked where nobody set them."""
    is_made: bool
    """Whether it was given as a `Conversation`."""
    form: type[Form] | None = None
    """Its short form, if it is one."""

    @classmethod
    def of(cls, given: Mapping[str, Any] | str | Conversation) -> "Base":
        """Read a conversation's fields.

        Raises:
            SpecError: Its file can't be read.
        """
        if isinstance(given, Conversation):
            return cls(marked(given), is_made=True)
        if isinstance(given, str):
            given = _read(FilePath(given))
        kind = given.get("kind")
        form = forms_by_kind().get(kind) if isinstance(kind, str) else None
        return cls(given, is_made=False, form=form)

    def place(self, path: Path) -> Path:
        """Give the path in the data that a path stands for: that of a short form's speaker.

        Raises:
            SpecError: There is no such speaker.
        """
        roles = self.form.roles if self.form else {}
        if not roles or path[0] != "speakers" or len(path) == 1:
            return path
        names = [self._name(role, field) for role, field in roles.items()]
        return ([*roles][_index(names, path[1], "speakers")], *path[2:])

    def _name(self, role: str, field: str) -> object:
        """What a speaker of a short form is called, where that does not vary."""
        given = self.data.get(role)
        named = given.get("name") if isinstance(given, Mapping) else getattr(given, "name", given)
        default = self.form.model_fields[field].default if self.form else None
        return named or self.data.get(field) or default

    def opened(self, place: Path) -> "Base":
        """Take apart what is on the way to a place, once for all cells.

        Raises:
            SpecError: There is no such item in a list on the way.
        """
        return replace(self, data=self._put(self.data, place, _NOTHING, ()))

    def filled(self, values: Mapping[Path, Any]) -> Mapping[str, Any]:
        """Put values into the data, by their places. A table changes only what it names."""
        data: Any = self.data
        for place, value in values.items():
            data = self._put(data, place, value, ())
        found: Mapping[str, Any] = data
        return found

    def _put(self, into: Any, place: Path, value: object, at: Path) -> Any:  # noqa: ANN401
        """Give something with another value at a place in it."""
        if not place:
            return into if value is _NOTHING else value
        name, *rest = place
        items = into.value if isinstance(into, Own) else into
        if isinstance(items, list | tuple):
            found = [Own(one) for one in items] if isinstance(into, Own) else [*items]
            index = _index([_called(one) for one in items], name, written(at))
            found[index] = self._put(found[index], tuple(rest), value, (*at, name))
            return found
        fields = self._fields(into, at)
        if value is _NOTHING and (not rest or fields.get(name) is None):
            return fields
        if not rest:
            fields = laid_over(fields, {name: value})
        else:
            fields = {**fields, name: self._put(fields.get(name), tuple(rest), value, (*at, name))}
        if name == "system_prompt" and not rest:
            # The few words for a tiny model say the old prompt's part.
            fields.pop("small_model_prompt", None)
        return fields

    def _fields(self, of: object, at: Path) -> dict[str, Any]:
        """The fields of a part, which may be given as a word."""
        if isinstance(of, str) and at:
            return dict(self._of_word(of, at))
        if self.is_made or not isinstance(of, BaseModel):
            return marked(of)
        fields: dict[str, Any] = plain(marked(of))
        return fields

    def _of_word(self, word: str, at: Path) -> Any:  # noqa: ANN401
        if len(at) == 1 and at[0] in _BY_WORD:
            return _BY_WORD[at[0]](word)
        if len(at) == 1 and self.form and at[0] in self.form.roles:
            return {"name": word}
        return {"text": word} if at[0] == "prompts" else by_kind(word)


def _read(path: FilePath) -> Mapping[str, Any]:
    try:
        return read_fields(path, "conversation")
    except SpecError as error:
        raise SpecError(f"conversation: {error}") from error


def conversation_of(data: Mapping[str, Any], *, is_made: bool) -> Conversation:
    """Make a conversation of its data, marked or not.

    Raises:
        SpecError: It is not valid; names the field.
    """
    return made(Conversation, data) if is_made else load_conversation(data)


def _called(one: object) -> object:
    """What something in a list is called, if anything."""
    value = one.value if isinstance(one, Own) else one
    return value.get("name") if isinstance(value, Mapping) else getattr(value, "name", None)


def _index(names: Sequence[object], name: str, where: str) -> int:
    """Find what has this name, or else this number, from 0."""
    if name in names:
        return names.index(name)
    if name.isdecimal() and int(name) < len(names):
        return int(name)
    known = [one for one in names if isinstance(one, str)]
    if name.isdecimal() or not known:
        raise SpecError(f"{where}: there is no {name}: they are {len(names)}, counted from 0")
    raise SpecError(f"{where}: nobody is called {name!r}{near_or_all(name, known)}")


def set_values(value: object) -> JsonValue:
    """Return the values that the caller set, as JSON."""
    match value:
        case BaseModel():
            found: JsonValue = value.model_dump(mode="json", exclude_unset=True, fallback=_name)
            return found
        case Mapping():
            set_ = {str(name): one for name, one in value.items() if not isinstance(one, Own)}
            return {name: set_values(one) for name, one in set_.items()}
        case list() | tuple():
            return [set_values(one) for one in value if not isinstance(one, Own)]
        case _:
            plain_value: JsonValue = to_jsonable_python(value, fallback=_name)
            return plain_value


def _name(thing: object) -> str:
    """What is given in Python and is no data, by its name."""
    return str(getattr(thing, "__name__", None) or getattr(thing, "name", None) or type(thing))
