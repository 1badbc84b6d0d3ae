"""Pure functions that read the JSON of a model's answer as a pydantic model.

A model is asked for one JSON object and nothing else. Many models add prose or a fence, or spell a
choice differently. All structured answers are read here: the answers of judges and moderators, and
answers that fit a user's own schema.
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
"""The separators between words in a key or a choice."""


class OwnAnswer(BaseModel):
    """Base of the answers that duologue itself requests, such as a verdict.

    They are requested strictly, with every field and no other, and read leniently: unknown keys are
    ignored, a list that is null or missing is empty, and null in a list is left out.
    """

    # OpenAI's strict schemas require every field and forbid all others.
    model_config = ConfigDict(extra="forbid")


def read_structured(model: type[M], text: str) -> M:
    """Parse the one JSON object of an answer as a pydantic model.

    The object may have prose or a fence around it. Case, spaces, hyphens and underscores are
    ignored in keys and in choices (enums and literals), if the result is unambiguous. A user's own
    model gets no other change: it refuses unknown keys if it forbids them, and null stays null.

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
        return _validate(model, write_json(_fold_answer(model, answer, is_own=True)))
    part = _answer_part(text)
    try:
        found = _validate(model, part)
    except ValidationError:
        # Objects within another JSON value are parts of that value.
        answer = None if _is_other_json(part) else _only_object(part)
        if answer is None:
            raise
        return _validate(model, write_json(_fold_answer(model, answer)))
    return _with_respelled_keys(model, part, found)


def _with_respelled_keys(model: type[M], text: str, found: M) -> M:
    """Return a valid answer, with the values of keys that its model ignored for their spelling."""
    try:
        answer = _only_object(text)
        folded = _fold_answer(model, answer)
        return found if is_equal(answer, folded) else _validate(model, write_json(folded))
    except (ValidationError, UnreadableJsonError):
        return found


def _fold_answer(model: type[BaseModel], answer: Json, *, is_own: bool = False) -> Json:
    schema = schema_of(model)
    try:
        return _Folder(schema.get("$defs", {}), is_own=is_own).fold(answer, schema)
    except RecursionError:
        raise UnreadableJsonError("it is nested too deeply") from None


def _answer_part(text: str) -> str:
    """Return the content of the only JSON fence, or the whole text."""
    # A fence begins a line, which nothing within JSON can do.
    among = [fence.content for fence in fences(text)[1] if fence.is_json]
    return among[0] if len(among) == 1 else text


def _validate(model: type[M], text: str) -> M:
    try:
        return model.model_validate_json(text)
    except ValidationError:
        raise
    except Exception as error:
        raise function_error("pydantic model", model.__name__, error) from error


def _is_other_json(text: str) -> bool:
    """Return whether a text is JSON but not an object, so that objects in it are parts."""
    try:
        return not isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _only_object(text: str) -> dict[str, Json] | None:
    """Return the one JSON object of a text, which may repeat it, or None if there is none."""
    # An empty object has no content and may be a pair of braces in prose.
    found = [*filter(None, find_objects(_without_other_code(text)))]
    if not all(is_equal(found[0], other) for other in found[1:]):
        raise UnreadableJsonError("it has two different JSON objects")
    return found[0] if found else None


def _without_other_code(text: str) -> str:
    """Return a text without fenced code in languages other than JSON."""
    lines, found = fences(text)
    other = [range(fence.first, fence.behind) for fence in found if not fence.is_json]
    kept = (line for place, line in enumerate(lines) if not any(place in one for one in other))
    return "".join(kept) if other else text


class _Folder:
    """A converter of an answer's keys and choices to the schema's spelling."""

    def __init__(self, definitions: Mapping[str, Any], *, is_own: bool) -> None:
        self._definitions = definitions
        self._is_own = is_own

    def fold(self, value: Json, schema: object) -> Json:
        """Return a value with the schema's keys and choices."""
        kinds = [*self._kinds(schema)]
        if type(value) is str:
            return _fold_choice(value, kinds)
        if not isinstance(value, dict | list):
            return value
        wanted = "object" if isinstance(value, dict) else "array"
        fitting = [kind for kind in kinds if kind.get("type") == wanted]
        # If several schemas fit a value, only its model can decide.
        if len(fitting) != 1:
            return value
        if isinstance(value, dict):
            return self._fold_object(value, fitting[0])
        items = fitting[0].get("items")
        if self._is_own:
            value = [item for item in value if item is not None]
        return [self.fold(item, items) for item in value]

    def _kinds(self, schema: object) -> Iterator[Mapping[str, Any]]:
        """Yield the schemas that a value may have, with references and unions resolved."""
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
        # If any key is allowed, each key is data.
        names = {key: key for key in given}
        if others is False:
            names = _fold_keys([*given], [*properties])
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
        """Return empty lists for the null or missing lists of an `OwnAnswer`."""
        lists = (name for name in properties if properties[name].get("type") == "array")
        return {name: [] for name in lists if found.get(name) is None}


def _fold(text: str) -> str:
    return _APART.sub("", text).casefold()


def _fold_keys(given: Sequence[str], wanted: Sequence[str]) -> dict[str, str]:
    """Return the schema's key for each given key."""
    known = _unambiguous_names(wanted)
    return {key: key if key in wanted else known.get(_fold(key), key) for key in given}


def _unambiguous_names(names: Sequence[str]) -> dict[str, str]:
    """Return names by their normalized spelling, without ambiguous names."""
    counts = Counter(map(_fold, names))
    return {_fold(name): name for name in names if counts[_fold(name)] == 1}


def _fold_choice(text: str, kinds: Sequence[Mapping[str, Any]]) -> str:
    """Return the matching choice, or the text itself if any text is allowed."""
    choices: list[str] = []
    for kind in kinds:
        listed = kind.get("enum", [kind["const"]] if "const" in kind else None)
        if listed is None and kind.get("type") == "string":
            return text
        choices += [one for one in listed or () if isinstance(one, str)]
    choices = [*dict.fromkeys(choices)]
    return text if text in choices else _unambiguous_names(choices).get(_fold(text), text)
