"""What duologue says to a speaker of the format of its replies. Pure functions."""

import json

from pydantic import BaseModel

from ...graphs.speakers.formats import BlockFormat, CodeFormat, Format, LabelledFormat, SchemaFormat
from ...graphs.speakers.schemas import schema_of


def describe_format(format: Format, schema: type[BaseModel] | None = None) -> str:  # noqa: A002
    """Describe what a reply must look like, for a system prompt and the request to mend one."""
    match format:
        case LabelledFormat():
            return _describe_marks(format)
        case BlockFormat():
            block = f"block for {format.tool_type!r}" if format.tool_type else "block"
            subject = f"Your message must hold a {block} that" if format.required else f"A {block}"
            marks = (
                f"begins with {_quote_mark(format.begin)} and ends with {_quote_mark(format.end)}"
            )
            on_lines = format.begin.endswith("\n") and format.end.startswith("\n")
            return f"{subject} {marks}{', each on a line of its own' if on_lines else ''}."
        case CodeFormat():
            names = " or ".join(repr(language) for language in format.languages)
            naming = f" that name its language, {names}" if names else ""
            subject = "Your message must hold code" if format.required else "Code must stand"
            return f"{subject} in Markdown fences (```){naming}."
        case SchemaFormat():
            if schema is None:
                return f"Your message must be JSON of the form {format.name!r} and nothing else."
            fields = json.dumps(schema_of(schema), ensure_ascii=False)
            return f"Your message must be JSON and nothing else, by this JSON schema: {fields}"


def is_format_described(format: Format, prompt: str) -> bool:  # noqa: A002
    """Whether a speaker need not be told its format."""
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
    """Say that a block of a reply is not closed."""
    if isinstance(format, BlockFormat):
        return f"A block of your message has no end: it must end with {_quote_mark(format.end)}."
    return "Code in your message has no closing fence."


JSON_CUT_OFF = "Your message must be JSON, and was cut off before its end: say it shorter."
"""What is wrong with JSON that ends at the longest length of an answer."""


def describe_repeated_marks(marks: LabelledFormat) -> str:
    """Say that a reply begins anew."""
    return f"Your message must have {marks.lines[0]!r} only once."


def describe_schema_error(problem: str) -> str:
    """Say why a reply does not fit its schema."""
    return f"Your message must be JSON that fits its schema, but does not: {problem.rstrip('.')}."


def _describe_marks(marks: LabelledFormat) -> str:
    parts = [f"begin with {marks.lines[0]!r}"]
    parts += [f"have a line that begins with {mark!r}" for mark in marks.lines[1:]]
    if marks.end is not None:
        parts.append(f"end with {marks.end!r}")
    return f"Your message must {', '.join(parts)}."


def _quote_mark(mark: str) -> str:
    # A line break would be shown as a backslash, and copied as one.
    return repr(mark.strip("\r\n"))
