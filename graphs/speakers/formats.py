"""Output formats of speakers, as data: their JSON schema, and the sentences that request them.

`graphs.log.parsing` parses a reply by its format.
"""

import json
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from enum import IntEnum
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    ValidationInfo,
    field_validator,
)

from ..common.data import MARK_LENGTH, Accepts, Data, Kinded, Mark, Name, Named, by_kind, default
from ..common.errors import function_error

EMPHASIS: Final = "*_`~"
"""Markdown characters that may surround a mark or occur within it."""

LEADING: Final = re.compile(r"[#>\s]*")
"""Other text allowed before a mark on its line: the characters of headings and quotations."""

EMPHASIS_SIGNS: Final = re.compile(f"[{re.escape(EMPHASIS)}]+")

BEFORE_COLON: Final = re.compile(rf"(?<!\s)[^\S\r\n]++(?=[{re.escape(EMPHASIS)}]*[:：])")  # noqa: RUF001
"""The space that some languages put before a colon."""

WIDE: Final = str.maketrans("：．。", ":..")  # noqa: RUF001
"""Full-width colons and full stops, with the characters that replace them for comparison."""

Verbatim = Annotated[
    str, StringConstraints(min_length=1, max_length=MARK_LENGTH, pattern=r"\S", strict=True)
]
"""A mark of up to 200 characters that must match exactly, line breaks and spaces included."""


def normalize_mark(text: str) -> str:
    """Normalize a mark or a line for comparison.

    Case, width and Markdown are ignored, and so is a space before a colon, as in French.
    """
    signs = BEFORE_COLON.sub("", EMPHASIS_SIGNS.sub("", text))
    leading = LEADING.match(signs)
    return signs[leading.end() if leading else 0 :].translate(WIDE).casefold()


class LabelledFormat(Kinded):
    """A format whose lines begin with marks, such as CAMEL's ``Instruction:`` and ``Input:``.

    Case, Markdown around a mark and full-width colons are ignored. A reply is parsed to a dict from
    each mark to the text after it.

    Raises:
        SpecError: One mark begins with another, so that they look alike; a mark consists
            of Markdown characters only; or an optional mark is not one of the lines after the
            first.
    """

    kind: Literal["lines"] = "lines"
    """The kind of format."""
    lines: Accepts[tuple[Mark, ...], Sequence[str]] = Field(min_length=1, kw_only=False)
    """The marks that begin the lines, in this order. The first mark begins the reply."""
    end: Mark | None = None
    """The mark that ends the reply. None if there is none."""
    optional: Accepts[tuple[Mark, ...], Sequence[str]] = default(())
    """The marks that may be missing. A missing line is added with the text ``None``."""

    @field_validator("lines")
    @classmethod
    def _check_lines(cls, lines: tuple[str, ...]) -> tuple[str, ...]:
        for place, mark in enumerate(lines):
            _check_mark(mark, lines[:place])
        return lines

    @field_validator("end")
    @classmethod
    def _check_end(cls, end: str | None, info: ValidationInfo) -> str | None:
        if end is not None:
            _check_mark(end, info.data.get("lines", ()))
        return end

    @field_validator("optional")
    @classmethod
    def _check_optional(cls, given: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        lines = info.data.get("lines", given)
        for mark in given:
            if mark not in lines:
                raise ValueError(f"{mark!r} is not one of the lines; use only marks from lines")
            if mark == lines[0] and "lines" in info.data:
                raise ValueError(
                    f"{mark!r} begins the reply and can't be missing; remove it from optional"
                )
        return given

    @property
    def texts(self) -> tuple[str, ...]:
        """Return all marks."""
        return self.lines if self.end is None else (*self.lines, self.end)


def _check_mark(mark: str, others: tuple[str, ...]) -> None:
    if not normalize_mark(mark):
        raise ValueError(
            f"{mark!r} is only Markdown; use words, or a format of kind 'blocks' or 'code'"
        )
    for other in others:
        if normalize_mark(mark).startswith(normalize_mark(other)) or normalize_mark(
            other
        ).startswith(normalize_mark(mark)):
            raise ValueError(
                f"{other!r} and {mark!r} overlap; choose marks so that none begins with another"
            )


class BlockFormat(Kinded):
    r"""A format with blocks between two marks, anywhere in a reply (Lagent's ``ToolParser``).

    A reply is parsed to the list of all its blocks in order (Lagent keeps only the first block).

    Raises:
        SpecError: A mark is blank, or one contains the other.

    Example:
        >>> code = BlockFormat(begin="```python\n", end="\n```\n", tool_type="code interpreter")
    """

    kind: Literal["blocks"] = "blocks"
    """The kind of format."""
    begin: Verbatim = Field(kw_only=False)
    """The exact text that begins a block; line breaks and spaces count."""
    end: Verbatim = Field(kw_only=False)
    """The exact text that ends a block. The end of the reply counts as a line break."""
    tool_type: Name | None = None
    """The name of the blocks, such as ``code interpreter``. Each parsed block contains this name.
    None if the blocks have no name."""
    required: bool = False
    """Whether the reply is requested once more if it contains no block."""

    @field_validator("end")
    @classmethod
    def _check_marks_overlap(cls, end: str, info: ValidationInfo) -> str:
        begin = info.data.get("begin")
        if begin is not None and (begin in end or end in begin):
            raise ValueError(
                f"{begin!r} and {end!r} overlap; choose marks so that none contains the other, for "
                "example with line breaks around them"
            )
        return end


class CodeFormat(Kinded):
    """A format with fenced code, as in Markdown.

    A reply is parsed to the list of all its blocks in order.

    Raises:
        SpecError: A language is not one word.
    """

    kind: Literal["code"] = "code"
    """The kind of format."""
    languages: Accepts[tuple[Name, ...], Sequence[str]] = Field(default=default(()), kw_only=False)
    """The languages of the code that counts, as fences name them; case is ignored. Code in other
    languages is treated as prose. If empty, all fenced code counts, labelled or not."""
    required: bool = False
    """Whether the reply is requested once more if it contains no code block."""

    @field_validator("languages")
    @classmethod
    def _check_languages(cls, languages: tuple[str, ...]) -> tuple[str, ...]:
        for language in languages:
            if len(language.split()) > 1 or "`" in language:
                raise ValueError(
                    f"{language!r} can't be the language of a code block; use one word for each "
                    "language"
                )
        return languages


class SchemaFormat(Kinded):
    """A format of JSON that fits a registered pydantic model.

    A reply is parsed to the model's fields.
    """

    kind: Literal["schema"] = "schema"
    """The kind of format."""
    name: Named = Field(kw_only=False)
    """The registered name of the pydantic model."""

    if TYPE_CHECKING:

        def __init__(self, name: str | type[BaseModel], **fields: Any) -> None: ...

    form: Literal["structured", "text"] = "structured"
    """The way to request the JSON. ``structured`` uses the model's structured output. ``text`` adds
    the schema to the prompt and parses the text, for models without structured output and for
    speakers that call tools."""


TELLING: Final = {"lines": "lines", "begin": "blocks", "languages": "code", "name": "schema"}
"""The fields that identify a kind of format, because only this kind has them."""


def _tag(given: object) -> str | None:
    """Return a format's ``kind``, or the kind that one of its fields identifies."""
    if not isinstance(given, dict):
        return getattr(given, "kind", "lines")
    found = (kind for field, kind in TELLING.items() if field in given)
    return str(given.get("kind", next(found, "lines")))


Format: TypeAlias = Annotated[
    Annotated[LabelledFormat, Tag("lines")]
    | Annotated[BlockFormat, Tag("blocks")]
    | Annotated[CodeFormat, Tag("code")]
    | Annotated[SchemaFormat, Tag("schema")],
    Discriminator(_tag),
    BeforeValidator(by_kind),
]
"""Any format of replies."""


class ParseStatus(IntEnum):
    """The result of parsing a block (Lagent's numbers)."""

    VALID = 1
    """The block is complete."""
    NONE = 0
    """There is no block, only prose."""
    BROKEN = -1
    """The block has no end."""


class ParsedBlock(Data):
    """One block of a reply, with the prose before it."""

    thought: str = ""
    """The prose before the block, unchanged."""
    action: str | None = None
    """The content of the block. None if there is only prose."""
    tool_type: str | None = None
    """The format's ``tool_type``; for fenced code, the language in lower case."""
    status: ParseStatus = ParseStatus.NONE
    """The result of parsing."""


_NAME_LENGTH: Final = 64
"""Maximum length of a schema's name that OpenAI accepts, in characters."""


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of a pydantic model in the form that models and servers receive."""
    # A copy, because callers and clients may change it.
    return deepcopy(_schema_of(model))


# Pydantic takes 2 to 5 ms for a schema, and each structured answer needs it twice.
@lru_cache(256)
def _schema_of(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema()
    referred = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if referred:
        # The other fields of a reference repeat its definition.
        schema = {**schema["$defs"][referred], "$defs": schema["$defs"]}
    schema = _inline_described(schema, schema.get("$defs", {}))
    title = re.sub(r"[^A-Za-z0-9_-]+", "_", str(schema.get("title", model.__name__))).strip("_")
    return {**schema, "title": title[:_NAME_LENGTH] or "answer"}


def _inline_described(
    part: Any,  # noqa: ANN401  # any part of a JSON schema
    definitions: Mapping[str, Any],
    within: tuple[str, ...] = (),
) -> Any:  # noqa: ANN401
    """Return a schema in which no reference has other keywords, which OpenAI and Gemini refuse.

    github.com/camel-ai/camel/issues/3001; ai.google.dev/api/generate-content, `responseJsonSchema`
    """
    if isinstance(part, list):
        return [_inline_described(each, definitions, within) for each in part]
    if not isinstance(part, dict):
        return part
    name = part.get("$ref")
    if isinstance(name, str) and len(part) > 1:
        if name in within:
            return {"$ref": name}
        others = {key: value for key, value in part.items() if key != "$ref"}
        found = definitions.get(name.removeprefix("#/$defs/"), {})
        part, within = {**found, **others}, (*within, name)
    return {key: _inline_described(each, definitions, within) for key, each in part.items()}


def write_schema_json(found: BaseModel) -> str:
    """Return an instance of a pydantic model as JSON.

    Raises:
        SpecError: The model's own code failed.
    """
    try:
        return found.model_dump_json()
    except Exception as error:
        raise function_error("pydantic model", type(found).__name__, error) from error


@cache
def is_object(model: type[BaseModel]) -> bool:
    """Return whether a pydantic model describes an object, as structured output requires."""
    return schema_of(model).get("type") == "object"


def describe_format(format: Format, schema: type[BaseModel] | None = None) -> str:  # noqa: A002
    """Describe the format of a reply, for a system prompt or a request to rewrite the reply."""
    match format:
        case LabelledFormat():
            parts = [f"begin with {format.lines[0]!r}"]
            parts += [f"contain a line that begins with {mark!r}" for mark in format.lines[1:]]
            if format.end is not None:
                parts.append(f"end with {format.end!r}")
            together = " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
            return f"Your message must {together}."
        case BlockFormat():
            return _describe_blocks(format)
        case CodeFormat():
            names = " or ".join(repr(language) for language in format.languages)
            naming = f" that name the language, {names}" if names else ""
            fences = f"Markdown fences (```){naming}"
            if format.required:
                return f"Your message must contain code in {fences}."
            return f"Put all code in {fences}."
        case SchemaFormat():
            if schema is None:
                return f"Your message must be JSON of the schema {format.name!r} and nothing else."
            return describe_schema(schema)


def describe_schema(schema: type[BaseModel]) -> str:
    """Describe a reply in JSON, for a prompt."""
    fields = json.dumps(schema_of(schema), ensure_ascii=False)
    return f"Your message must be JSON and nothing else. It must fit this JSON schema: {fields}"


def is_format_described(format: Format, prompt: str) -> bool:  # noqa: A002
    """Return whether a speaker's model knows the format without a description."""
    match format:
        case LabelledFormat():
            return format.lines[0] in prompt
        case BlockFormat():
            return format.begin.strip() in prompt
        case CodeFormat():
            return "```" in prompt
        case SchemaFormat():
            return format.form == "structured"


def describe_unclosed_block(format: BlockFormat | CodeFormat) -> str:  # noqa: A002
    """Return the problem of a reply with an unclosed block."""
    if isinstance(format, BlockFormat):
        return f"A block in your message is not closed. End it with {_quote_mark(format.end)}."
    return "The code in your message has no closing fence."


JSON_CUT_OFF = "Your message must be JSON, but it was too long and was cut off. Use fewer words."
"""The problem of JSON that was cut off at the token limit."""


def describe_repeated_marks(marks: LabelledFormat) -> str:
    """Return the problem of a reply that contains its first mark twice."""
    return f"Your message must contain {marks.lines[0]!r} only once."


def describe_schema_error(problem: str) -> str:
    """Return the problem of a reply that does not fit its schema."""
    return (
        f"Your message must be JSON that fits its schema, but it does not: {problem.rstrip('.')}."
    )


def _describe_blocks(format: BlockFormat) -> str:  # noqa: A002
    block = f"block for {format.tool_type!r}" if format.tool_type else "block"
    subject = f"Your message must contain a {block} that" if format.required else f"A {block}"
    marks = f"begins with {_quote_mark(format.begin)} and ends with {_quote_mark(format.end)}"
    on_lines = format.begin.endswith("\n") and format.end.startswith("\n")
    return f"{subject} {marks}{', each on its own line' if on_lines else ''}."


def _quote_mark(mark: str) -> str:
    # The quoted form shows a line break as a backslash, which the model would copy.
    return repr(mark.strip("\r\n"))
