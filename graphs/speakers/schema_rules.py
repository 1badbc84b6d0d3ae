"""The parts of JSON Schema that providers can enforce, as data, and the check of a schema."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

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
    return next(walk.visit(schema, "", 0, (), ()), None) or walk.find_excess()


class _Walk:
    """A walk through a schema, which follows references."""

    def __init__(self, schema: Mapping[str, Any], rules: SchemaRules) -> None:
        self._definitions = schema.get("$defs", {})
        self._rules = rules
        self._visited: dict[str, int] = {}
        """The depth at which a definition was visited, by its name."""
        self._optional = self._unions = 0

    def visit(
        self,
        part: object,
        path: str,
        depth: int,
        within: tuple[str, ...],
        required: tuple[str, ...],
    ) -> Iterator[str]:
        """Yield the parts that the rules do not allow.

        Args:
            part: A part of the schema.
            path: The path of the part, for errors.
            depth: The number of objects and lists around the part.
            within: The definitions around the part.
            required: The definitions around the part, without fields in between that are not
                required.
        """
        if not isinstance(part, Mapping):
            # True accepts any value, and so does an empty schema.
            part = {}
        at = path or "the root"
        if why := self._problem(part, depth):
            yield f"{at}: {why}"
        if "$ref" in part:
            yield from self._follow(part["$ref"], path, depth, within, required)
        self._unions += "anyOf" in part or "oneOf" in part
        for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            inner = depth + (key == "prefixItems")
            for each in part.get(key, ()):
                yield from self.visit(each, path, inner, within, required)
        if "items" in part:
            yield from self.visit(part["items"], f"{path}[]", depth + 1, within, required)
        needed = part.get("required", ())
        for name, field in part.get("properties", {}).items():
            self._optional += name not in needed
            own = required if name in needed else ()
            inside = f"{path}.{name}".removeprefix(".")
            yield from self.visit(field, inside, depth + 1, within, own)
        if isinstance(more := part.get("additionalProperties"), Mapping):
            inside = f"{path}.*".removeprefix(".")
            yield from self.visit(more, inside, depth + 1, within, required)

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

    def _follow(
        self,
        reference: str,
        path: str,
        depth: int,
        within: tuple[str, ...],
        required: tuple[str, ...],
    ) -> Iterator[str]:
        name, rules = reference.removeprefix("#/$defs/"), self._rules
        if name in within:
            is_allowed = rules.accepts_cycles or (
                rules.accepts_optional_cycles and name not in required
            )
            if not is_allowed:
                yield f"{path}: an object contains objects of its own kind"
        elif self._visited.get(name, -1) < (at := depth if rules.depth is not None else 0):
            self._visited[name] = at
            found = self._definitions.get(name, {})
            yield from self.visit(found, path, depth, (*within, name), (*required, name))
