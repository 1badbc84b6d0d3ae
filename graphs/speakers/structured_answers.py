"""Reading the JSON of a model's answer as a pydantic model. Pure functions.

A model is asked for one JSON object and nothing else. Many put prose or a fence around it, or spell
a choice in their own way. All structured answers are read here: those of judges and moderators, and
those that fit a user's own schema.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ..common.errors import function_error
from ..text.fences import fences
from ..text.json_objects import (
    Json,
    UnreadableJsonError,
    find_objects,
    is_equal,
    write_json,
)
from .formats import schema_of

M = TypeVar("M", bound=BaseModel)

_APART: Final = re.compile(r"[\s_-]+")
"""The separators of the words of a key or a choice."""


class OwnAnswer(BaseModel):
    """Base of the answers that duologue itself asks for, such as a verdict.

    They are requested strictly: every field, and no other. They are read leniently: keys that
    nobody asked for are ignored, a list that is null or missing is empty, and null in a list is
    left out.
    """

    # Strict schemas of OpenAI's API want every field and no other.
    model_config = ConfigDict(extra="forbid")


def read_structured(model: type[M], text: str) -> M:
    """Read the one JSON object of an answer as a pydantic model.

    The object may have prose or a fence around it. Case, spaces, hyphens and underscores do not
    count in keys and in choices (enums and literals), if that leaves no doubt. A user's own model
    gets no other change: it refuses unknown keys if it forbids them, and null stays null.

    Raises:
        ValidationError: The object does not fit the model, or the text has none.
        UnreadableJsonError: There are two different objects, or an object has one key with two
            different values.
        SpecError: The model's own code failed.
    """
    if issubclass(model, OwnAnswer):
        answer = _only_object(text)
        if answer is None:
            raise UnreadableJsonError("it has no JSON object")
        return _validated(model, write_json(_folded_answer(model, answer, is_own=True)))
    part = _answer_part(text)
    try:
        found = _validated(model, part)
    except ValidationError:
        # Objects within another value of JSON are its parts.
        answer = None if _is_other_json(part) else _only_object(part)
        if answer is None:
            raise
        return _validated(model, write_json(_folded_answer(model, answer)))
    return _with_respelled_keys(model, part, found)


def _with_respelled_keys(model: type[M], text: str, found: M) -> M:
    """Return an answer that fits, with the keys that it would lose by their spelling."""
    try:
        answer = _only_object(text)
        folded = _folded_answer(model, answer)
        return found if is_equal(answer, folded) else _validated(model, write_json(folded))
    except (ValidationError, UnreadableJsonError):
        return found


def _folded_answer(model: type[BaseModel], answer: Json, *, is_own: bool = False) -> Json:
    schema = schema_of(model)
    try:
        return _Folder(schema.get("$defs", {}), is_own=is_own).fold(answer, schema)
    except RecursionError:
        raise UnreadableJsonError("it is nested too deeply") from None


def _answer_part(text: str) -> str:
    """Return the content of the only fence of JSON, or all of the text."""
    # A fence begins a line, which nothing within JSON can do.
    among = [fence.content for fence in fences(text)[1] if fence.is_json]
    return among[0] if len(among) == 1 else text


def _validated(model: type[M], text: str) -> M:
    try:
        return model.model_validate_json(text)
    except ValidationError:
        raise
    except Exception as error:
        raise function_error("pydantic model", model.__name__, error) from error


def _is_other_json(text: str) -> bool:
    """Return whether a text is a value of JSON that is no object: objects in it are its parts."""
    try:
        return not isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _only_object(text: str) -> dict[str, Json] | None:
    """Return the one JSON object of a text, which may say it more than once. None: it has none."""
    # An empty object says nothing, and may be a pair of braces in prose.
    found = [*filter(None, find_objects(_without_other_code(text)))]
    if not all(is_equal(found[0], other) for other in found[1:]):
        raise UnreadableJsonError("it has two different JSON objects")
    return found[0] if found else None


def _without_other_code(text: str) -> str:
    """Return a text without the fenced code that names another language than JSON."""
    lines, found = fences(text)
    other = [range(fence.first, fence.behind) for fence in found if not fence.is_json]
    kept = (line for place, line in enumerate(lines) if not any(place in one for one in other))
    return "".join(kept) if other else text


class _Folder:
    """Spells the keys and choices of an answer as its schema does."""

    def __init__(self, definitions: Mapping[str, Any], *, is_own: bool) -> None:
        self._definitions = definitions
        self._is_own = is_own

    def fold(self, value: Json, schema: object) -> Json:
        """Return a value with the keys and choices of its schema."""
        kinds = [*self._kinds(schema)]
        if type(value) is str:
            return _fold_choice(value, kinds)
        if not isinstance(value, dict | list):
            return value
        wanted = "object" if isinstance(value, dict) else "array"
        fitting = [kind for kind in kinds if kind.get("type") == wanted]
        # Which of several a value is meant for is its model's own business.
        if len(fitting) != 1:
            return value
        if isinstance(value, dict):
            return self._fold_object(value, fitting[0])
        items = fitting[0].get("items")
        if self._is_own:
            value = [item for item in value if item is not None]
        return [self.fold(item, items) for item in value]

    def _kinds(self, schema: object) -> Iterator[Mapping[str, Any]]:
        """The schemas that a value may have, without references and unions."""
        if not isinstance(schema, Mapping):
            return
        name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
        if name:
            yield from self._kinds(self._definitions.get(name))
            return
        union = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]
        for one in union:
            yield from self._kinds(one)
        if not union:
            yield schema

    def _fold_object(self, given: dict[str, Json], schema: Mapping[str, Any]) -> dict[str, Json]:
        properties: Mapping[str, Any] = schema.get("properties", {})
        others = schema.get("additionalProperties", False)
        # Where any key may be, each is data.
        names = {key: key for key in given}
        if others is False:
            names = _folded_keys([*given], [*properties])
        found: dict[str, Json] = {}
        for key, value in given.items():
            name = names[key]
            if self._is_own and name not in properties:
                continue
            folded = self.fold(value, properties.get(name, others))
            if not is_equal(found.setdefault(name, folded), folded):
                raise UnreadableJsonError(f"the key {name!r} has two different values")
        return found | self._empty_lists(found, properties) if self._is_own else found

    def _empty_lists(
        self, found: Mapping[str, Json], properties: Mapping[str, Any]
    ) -> dict[str, Json]:
        """The lists of one of our own answers that are null or missing."""
        lists = (name for name in properties if properties[name].get("type") == "array")
        return {name: [] for name in lists if found.get(name) is None}


def _folded(text: str) -> str:
    return _APART.sub("", text).casefold()


def _folded_keys(given: Sequence[str], wanted: Sequence[str]) -> dict[str, str]:
    """Return for each key the one that is meant by it."""
    known = _only_folded(wanted)
    return {key: key if key in wanted else known.get(_folded(key), key) for key in given}


def _only_folded(names: Sequence[str]) -> dict[str, str]:
    """Return names by how they are compared, but for those that are compared alike."""
    counts = Counter(map(_folded, names))
    return {_folded(name): name for name in names if counts[_folded(name)] == 1}


def _fold_choice(text: str, kinds: Sequence[Mapping[str, Any]]) -> str:
    """Return the choice that a text means; the text itself if it may be any text."""
    choices: list[str] = []
    for kind in kinds:
        listed = kind.get("enum", [kind["const"]] if "const" in kind else None)
        if listed is None and kind.get("type") == "string":
            return text
        choices += [one for one in listed or () if isinstance(one, str)]
    choices = [*dict.fromkeys(choices)]
    return text if text in choices else _only_folded(choices).get(_folded(text), text)
