"""JSON answers of models: schemas that providers can enforce, and answers read as pydantic models.

A model is asked for one JSON object and nothing else. Many models add prose or a fence, or spell a
choice differently. All structured answers are read here: the answers of judges and moderators, and
answers that fit a user's own schema. Pure functions.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ..common.errors import function_error
from ..text.structures import Json, UnreadableJsonError, fences, find_objects, is_equal, write_json
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
    # The content of the only JSON fence, or the whole text. A fence begins a line, which nothing
    # within JSON can do.
    among = [fence.content for fence in fences(text)[1] if fence.is_json]
    part = among[0] if len(among) == 1 else text
    try:
        found = _validate(model, part)
    except ValidationError:
        # Objects within another JSON value are parts of that value.
        answer = None if _is_other_json(part) else _only_object(part)
        if answer is None:
            raise
        return _validate(model, write_json(_fold_answer(model, answer)))
    # The answer is valid, but its model may have ignored keys because of their spelling.
    try:
        answer = _only_object(part)
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
    """Return the one JSON object of a text, which may repeat it, or None if there is none.

    Fenced code in languages other than JSON does not count.
    """
    lines, code = fences(text)
    other = [range(fence.first, fence.behind) for fence in code if not fence.is_json]
    kept = (line for place, line in enumerate(lines) if not any(place in one for one in other))
    text = "".join(kept) if other else text
    # An empty object has no content and may be a pair of braces in prose.
    found = [*filter(None, find_objects(text))]
    if not all(is_equal(found[0], other) for other in found[1:]):
        raise UnreadableJsonError("it has two different JSON objects")
    return found[0] if found else None


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
            known = _unambiguous_names([*properties])
            names = {key: key if key in properties else known.get(_fold(key), key) for key in given}
        found: dict[str, Json] = {}
        for key, value in given.items():
            name = names[key]
            if self._is_own and name not in properties:
                continue
            folded = self.fold(value, properties.get(name, others))
            if not is_equal(found.setdefault(name, folded), folded):
                raise UnreadableJsonError(f"the key {name!r} has two different values")
        for name, field in properties.items() if self._is_own else ():
            # A list of an `OwnAnswer` that is null or missing is empty.
            if field.get("type") == "array" and found.get(name) is None:
                found[name] = []
        return found


def _fold(text: str) -> str:
    return _APART.sub("", text).casefold()


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


_VALUE_KEYWORDS: Final = ("type", "anyOf", "oneOf", "allOf", "enum", "const", "$ref")
"""The keywords that restrict values. A schema without any of them accepts every value."""


class SchemaRules(NamedTuple):
    """The rules of a provider that enforces schemas.

    It refuses a schema that breaks a rule, or its models can't give the answer that is meant.
    """

    accepts_open: bool = False
    """Whether an object may have keys that the schema does not name."""
    accepts_any: bool = False
    """Whether a value may be of any kind."""
    accepts_tuples: bool = False
    """Whether the items of a list may have a schema each."""
    accepts_cycles: bool = False
    """Whether an object may contain objects of its own kind."""
    accepts_optional_cycles: bool = False
    """Whether it may do so in fields that are not required."""
    keywords: frozenset[str] | None = None
    """The accepted keywords. All of them if None."""
    formats: frozenset[str] | None = None
    """The accepted formats of texts. All of them if None."""
    pattern: re.Pattern[str] | None = None
    """A regular expression for the patterns that are accepted. All of them if None."""
    depth: int | None = None
    """The largest number of objects and lists within one another. No limit if None."""
    optional: int | None = None
    """The largest number of fields that are not required. No limit if None."""
    unions: int | None = None
    """The largest number of unions. No limit if None."""


OPENAI: Final = SchemaRules(
    # developers.openai.com/api/docs/guides/structured-outputs, "Supported schemas".
    accepts_cycles=True,
    keywords=frozenset(
        {
            *("type", "properties", "required", "additionalProperties", "items", "enum", "const"),
            *("anyOf", "$ref", "$defs", "title", "description", "default", "pattern", "format"),
            *("multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
            *("minItems", "maxItems", "minLength", "maxLength"),
        }
    ),
    formats=frozenset(
        {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
    ),
    # Without lookaround: github.com/existential-birds/daydream/issues/304 quotes the error.
    pattern=re.compile(r"(?s)(?!.*\(\?<?[=!])"),
    depth=10,
)
"""The rules of OpenAI's strict mode."""

CLAUDE: Final = SchemaRules(
    # platform.claude.com/docs/en/build-with-claude/structured-outputs, "JSON Schema limitations"
    # and "Schema complexity limits". Anthropic's client moves other keywords to descriptions.
    optional=24,
    unions=16,
)
"""The rules of Claude's structured outputs."""

GEMINI: Final = SchemaRules(
    # ai.google.dev/api/generate-content, `responseJsonSchema`. Other keywords are ignored.
    accepts_open=True,
    accepts_tuples=True,
    accepts_optional_cycles=True,
)
"""The rules of Gemini's ``responseJsonSchema``."""

LLAMA: Final = SchemaRules(
    accepts_open=True,
    accepts_any=True,
    accepts_cycles=True,
    # github.com/ollama/ollama/issues/8325; `_visit_pattern` in llama.cpp's json_schema_to_grammar
    # knows only the beginning and the end of the text, and no lookaround.
    pattern=re.compile(r"(?s)\^(?!.*\(\?[^:]).*\$\Z"),
)
"""The rules of the grammars that llama.cpp and Ollama make of schemas."""


def find_unsupported(schema: Mapping[str, Any], rules: SchemaRules) -> str | None:
    """Return the first part of a schema that rules do not allow, as its path and the reason.

    Returns None if they allow the whole schema.
    """
    walk = _Walk(schema, rules)
    return next(walk.visit(schema, _Place()), None) or walk.find_excess()


class _Place(NamedTuple):
    """The place of a part of a schema."""

    path: str = ""
    """The path of the part, for errors."""
    depth: int = 0
    """The number of objects and lists around the part."""
    within: tuple[str, ...] = ()
    """The definitions around the part."""
    required: tuple[str, ...] = ()
    """The definitions around the part, without fields in between that are not required."""

    def enter(self, name: str) -> "_Place":
        """Return the place of a field, of the items, or of other values."""
        path = f"{self.path}{name}" if name == "[]" else f"{self.path}.{name}".removeprefix(".")
        return self._replace(path=path, depth=self.depth + 1)


class _Walk:
    """A walk through a schema, which follows references."""

    def __init__(self, schema: Mapping[str, Any], rules: SchemaRules) -> None:
        self._definitions = schema.get("$defs", {})
        self._rules = rules
        self._visited: dict[str, int] = {}
        """The depth at which a definition was visited, by its name."""
        self._optional = self._unions = 0

    def visit(self, part: object, at: _Place) -> Iterator[str]:
        """Yield the parts that the rules do not allow."""
        if not isinstance(part, Mapping):
            # True accepts any value, and so does an empty schema.
            part = {}
        if why := self._problem(part, at.depth):
            yield f"{at.path or 'the root'}: {why}"
        if "$ref" in part:
            yield from self._follow(part["$ref"], at)
        self._unions += "anyOf" in part or "oneOf" in part
        for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            inner = at._replace(depth=at.depth + (key == "prefixItems"))
            for each in part.get(key, ()):
                yield from self.visit(each, inner)
        if "items" in part:
            yield from self.visit(part["items"], at.enter("[]"))
        needed = part.get("required", ())
        for name, field in part.get("properties", {}).items():
            self._optional += name not in needed
            inner = at.enter(name)
            yield from self.visit(field, inner if name in needed else inner._replace(required=()))
        if isinstance(more := part.get("additionalProperties"), Mapping):
            yield from self.visit(more, at.enter("*"))

    def find_excess(self) -> str | None:
        """Return the kind of parts of which the schema has too many, or None."""
        for name, count, most in (
            ("fields that are not required", self._optional, self._rules.optional),
            ("unions", self._unions, self._rules.unions),
        ):
            if most is not None and count > most:
                return f"the schema has {count} {name}, and at most {most} are allowed"
        return None

    def _problem(self, part: Mapping[str, Any], depth: int) -> str | None:
        """Return the rule that one part breaks by itself, or None."""
        rules = self._rules
        is_open = part.get("additionalProperties", False) is not False
        if not rules.accepts_open and (
            is_open or (part.get("type") == "object" and "properties" not in part)
        ):
            return "an object may have any keys"
        is_free = part.get("type") == "array" and "items" not in part
        if is_free and not rules.accepts_any and "prefixItems" in part:
            return None if rules.accepts_tuples else "each item has its own schema"
        is_any = is_free or not any(word in part for word in _VALUE_KEYWORDS)
        if is_any and not rules.accepts_any:
            return "a value may be of any kind"
        if rules.keywords is not None and (unknown := sorted({*part} - rules.keywords)):
            return f"{unknown[0]} is not supported"
        if rules.formats is not None and part.get("format", "date") not in rules.formats:
            return f"the format {part['format']} is not supported"
        pattern = part.get("pattern")
        if rules.pattern is not None and pattern and not rules.pattern.match(pattern):
            return "this kind of pattern is not supported"
        if rules.depth is not None and depth > rules.depth:
            return f"more than {rules.depth} objects are within one another"
        return None

    def _follow(self, reference: str, at: _Place) -> Iterator[str]:
        name, rules = reference.removeprefix("#/$defs/"), self._rules
        depth = at.depth if rules.depth is not None else 0
        if name in at.within:
            is_optional = rules.accepts_optional_cycles and name not in at.required
            if not (rules.accepts_cycles or is_optional):
                yield f"{at.path}: an object contains objects of its own kind"
        elif self._visited.get(name, -1) < depth:
            self._visited[name] = depth
            inner = at._replace(within=(*at.within, name), required=(*at.required, name))
            yield from self.visit(self._definitions.get(name, {}), inner)
