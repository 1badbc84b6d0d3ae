"""Where a speaker's words come from, as data: functions, code that is run, a model, a fixed text.

They are tried in order.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from duologue.graphs.data import Kinded, Name, Text, by_kind


class FunctionReply(Kinded):
    """A registered function gives the reply, or none (AutoGen's registered reply functions)."""

    kind: Literal["function"] = "function"
    """What gives it."""
    name: Name
    """The name it is registered by. It is called with the `Turn`, and gives the reply's text, or
    None to leave it to what comes next."""


class CodeReply(Kinded):
    """Code is run, and what came of it is the reply (AutoGen's code execution).

    It runs the fenced code of the newest message that the speaker has heard, block by block, in the
    conversation's sandbox; the first that fails is the last. It gives no reply where there is none.
    """

    kind: Literal["code"] = "code"
    """What gives it."""


class ModelReply(Kinded):
    """The speaker's model gives the reply, and may call the speaker's tools."""

    kind: Literal["model"] = "model"
    """What gives it."""


class TextReply(Kinded):
    """A text that is always the same (AutoGen's default reply). It never counts as a repetition."""

    kind: Literal["text"] = "text"
    """What gives it."""
    text: Text
    """The reply."""


AnyReply: TypeAlias = Annotated[
    FunctionReply | CodeReply | ModelReply | TextReply,
    Field(discriminator="kind"),
    BeforeValidator(by_kind),
]
"""Anything that gives a reply."""
