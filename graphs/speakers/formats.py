"""What a speaker's replies look like, as data, and what is read from one.

How a reply is read is in `graphs.log.formats.parsing`, how a speaker is told of its format in
`graphs.speakers.format_requests`.
"""

import re
from collections.abc import Sequence
from enum import IntEnum
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
)

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

EMPHASIS: Final = "*_`~"
"""Markdown signs that may stand around a mark and within it."""

LEADING: Final = re.compile(r"[#>\s]*")
"""What else may stand before a mark on its line: the signs of headings and quotations."""

EMPHASIS_SIGNS: Final = re.compile(f"[{re.escape(EMPHASIS)}]+")

BEFORE_COLON: Final = re.compile(rf"(?<!\s)[^\S\r\n]++(?=[{re.escape(EMPHASIS)}]*[:：])")  # noqa: RUF001
"""The space that some languages put before a colon."""

WIDE: Final = str.maketrans("：．。", ":..")  # noqa: RUF001
"""Full-width colons and full stops, and what they are compared as."""

Verbatim = Annotated[
    str, StringConstraints(min_length=1, max_length=MARK_LENGTH, pattern=r"\S", strict=True)
]
"""A mark of up to 200 characters, taken as it is: line breaks and spaces belong to it."""


def plain(text: str) -> str:
    """Give a mark, or a line, as they are compared.

    Case, width and Markdown do not count, nor does a space before a colon, as in French.
    """
    signs = BEFORE_COLON.sub("", EMPHASIS_SIGNS.sub("", text))
    leading = LEADING.match(signs)
    return signs[leading.end() if leading else 0 :].translate(WIDE).casefold()


class LabelledFormat(Kinded):
    """Marks that begin a line each, such as CAMEL's ``Instruction:`` and ``Input:``.

    Case, Markdown around a mark and full-width colons do not matter. A reply is read as a table:
    for each mark what comes after it.

    Raises:
        SpecError: One mark begins with another, so that nobody could tell them
            apart, or is nothing but Markdown signs. An optional mark is not one of the lines after
            the first.
    """

    kind: Literal["lines"] = "lines"
    """Replies whose lines begin with marks."""
    lines: Accepts[tuple[Mark, ...], Sequence[str]] = Field(min_length=1, kw_only=False)
    """What begins a line each, in this order; the first one begins the reply."""
    end: Mark | None = None
    """What the reply ends with."""
    optional: Accepts[tuple[Mark, ...], Sequence[str]] = default(())
    """Which of the lines may be missing: such a line is added, and says ``None``."""

    @field_validator("lines")
    @classmethod
    def _lines_differ(cls, lines: tuple[str, ...]) -> tuple[str, ...]:
        for place, mark in enumerate(lines):
            _check_mark(mark, lines[:place])
        return lines

    @field_validator("end")
    @classmethod
    def _end_differs(cls, end: str | None, info: ValidationInfo) -> str | None:
        if end is not None:
            _check_mark(end, info.data.get("lines", ()))
        return end

    @field_validator("optional")
    @classmethod
    def _optional_are_lines(cls, given: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        lines = info.data.get("lines", given)
        for mark in given:
            if mark not in lines:
                raise ValueError(f"{mark!r} is not one of the lines: name some of them")
            if mark == lines[0] and "lines" in info.data:
                raise ValueError(f"{mark!r} begins the reply: it can't be missing")
        return given

    @property
    def texts(self) -> tuple[str, ...]:
        """All marks."""
        return self.lines if self.end is None else (*self.lines, self.end)


def _check_mark(mark: str, others: tuple[str, ...]) -> None:
    if not plain(mark):
        raise ValueError(
            f"{mark!r} is nothing but Markdown: give words, or a format of kind 'blocks' or 'code'"
        )
    for other in others:
        if plain(mark).startswith(plain(other)) or plain(other).startswith(plain(mark)):
            raise ValueError(
                f"{other!r} and {mark!r} overlap: give marks of which none begins with another"
            )


class BlockFormat(Kinded):
    r"""Blocks between two marks, wherever in a reply they stand (Lagent's ``ToolParser``).

    A reply is read as the list of all its blocks in order (Lagent keeps the first one only).

    Raises:
        SpecError: A mark is blank, or one holds the other.

    Example:
        >>> code = BlockFormat(begin="```python\n", end="\n```\n", tool_type="code interpreter")
    """

    kind: Literal["blocks"] = "blocks"
    """Replies with blocks between two marks."""
    begin: Verbatim = Field(kw_only=False)
    """What a block begins with, to the letter: line breaks and spaces belong to it."""
    end: Verbatim = Field(kw_only=False)
    """What a block ends with, to the letter. The end of the reply counts as a line break."""
    tool_type: Name | None = None
    """What its blocks are called, such as ``code interpreter``; it stands in each of them."""
    required: bool = False
    """Whether a reply without a block is asked for again."""

    @field_validator("end")
    @classmethod
    def _marks_differ(cls, end: str, info: ValidationInfo) -> str:
        begin = info.data.get("begin")
        if begin is not None and (begin in end or end in begin):
            raise ValueError(
                f"{begin!r} and {end!r} overlap: give marks of which none holds the other, such "
                "as by the line breaks around them"
            )
        return end


class CodeFormat(Kinded):
    """Fenced code, as in Markdown. A reply is read as the list of all its blocks in order.

    Raises:
        SpecError: A language is not one word.
    """

    kind: Literal["code"] = "code"
    """Replies with fenced code."""
    languages: Accepts[tuple[Name, ...], Sequence[str]] = Field(default=default(()), kw_only=False)
    """The languages that count, in any case, as fences name them. Other code is prose. None given:
    any language, and code that names none."""
    required: bool = False
    """Whether a reply without a block is asked for again."""

    @field_validator("languages")
    @classmethod
    def _languages_are_words(cls, languages: tuple[str, ...]) -> tuple[str, ...]:
        for language in languages:
            if len(language.split()) > 1 or "`" in language:
                raise ValueError(f"{language!r} can't label a fence: give one word for each")
        return languages


class SchemaFormat(Kinded):
    """A reply that is JSON, of a pydantic model registered by name. It is read as its fields."""

    kind: Literal["schema"] = "schema"
    """Replies that are JSON."""
    name: Named = Field(kw_only=False)
    """The name that the pydantic model is registered by."""

    if TYPE_CHECKING:

        def __init__(self, name: str | type[BaseModel], **fields: Any) -> None: ...

    form: Literal["structured", "text"] = "structured"
    """``structured``: the model is held to the schema. ``text``: it is told the schema, and its
    text is read, for models without structured output and speakers that call tools."""


TELLING: Final = {"lines": "lines", "begin": "blocks", "languages": "code", "name": "schema"}
"""The fields that only one kind has, and needs or is given for."""


def _tag(given: object) -> str | None:
    """Tell the kinds apart by their ``kind``, else by a field that only one has."""
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
"""What a speaker's replies look like."""


class ParseStatus(IntEnum):
    """How a block was read (Lagent's numbers)."""

    VALID = 1
    """It is whole."""
    NONE = 0
    """There is no block: it is prose alone."""
    BROKEN = -1
    """It has no end."""


class ParsedBlock(Data):
    """One block of a reply, with the prose before it."""

    thought: str = ""
    """The prose before the block, as it stands there."""
    action: str | None = None
    """What stands in the block. None: there is only prose."""
    tool_type: str | None = None
    """What the block is called; of fenced code its language, in lower case."""
    status: ParseStatus = ParseStatus.NONE
    """How it was read."""
