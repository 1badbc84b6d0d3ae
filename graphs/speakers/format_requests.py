"""The requests of a speaker's output format, as sentences for its model. Pure functions."""

import json

from pydantic import BaseModel

from .formats import BlockFormat, CodeFormat, Format, LabelledFormat, SchemaFormat
from .schemas import schema_of


def describe_format(format: Format, schema: type[BaseModel] | None = None) -> str:  # noqa: A002
    """Describe the format of a reply, for a system prompt or a request to rewrite the reply."""
    match format:
        case LabelledFormat():
            return _describe_marks(format)
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
            fields = json.dumps(schema_of(schema), ensure_ascii=False)
            return (
                "Your message must be JSON and nothing else. It must fit this JSON schema: "
                f"{fields}"
            )


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
"""The problem of JSON that reached the token limit of an answer."""


def describe_repeated_marks(marks: LabelledFormat) -> str:
    """Return the problem of a reply that begins a second time."""
    return f"Your message must contain {marks.lines[0]!r} only once."


def describe_schema_error(problem: str) -> str:
    """Return the problem of a reply that does not fit its schema."""
    return (
        f"Your message must be JSON that fits its schema, but it does not: {problem.rstrip('.')}."
    )


def _describe_marks(marks: LabelledFormat) -> str:
    parts = [f"begin with {marks.lines[0]!r}"]
    parts += [f"contain a line that begins with {mark!r}" for mark in marks.lines[1:]]
    if marks.end is not None:
        parts.append(f"end with {marks.end!r}")
    together = " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
    return f"Your message must {together}."


def _describe_blocks(format: BlockFormat) -> str:  # noqa: A002
    block = f"block for {format.tool_type!r}" if format.tool_type else "block"
    subject = f"Your message must contain a {block} that" if format.required else f"A {block}"
    marks = f"begins with {_quote_mark(format.begin)} and ends with {_quote_mark(format.end)}"
    on_lines = format.begin.endswith("\n") and format.end.startswith("\n")
    return f"{subject} {marks}{', each on a line of its own' if on_lines else ''}."


def _quote_mark(mark: str) -> str:
    # A line break would be shown as a backslash, and copied as one.
    return repr(mark.strip("\r\n"))
