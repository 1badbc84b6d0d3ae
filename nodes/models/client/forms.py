"""The form of OpenAI's API that holds an answer to a JSON schema."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_function
from pydantic import BaseModel

from ....graphs.speakers.schemas import is_strict, schema_of
from ..tool_calling.by_schema import answer_schema

_OLDER: Final = re.compile(r"gpt-3|gpt-4(-|$)")
"""Models of OpenAI that know no form; LangChain has them call a function instead."""


def takes_forms(model: str) -> bool:
    """Whether a model may be held to a schema by the form."""
    return _OLDER.match(model) is None


@cache
def form_of(schema: type[BaseModel]) -> dict[str, Any]:
    """Give the form for a pydantic model, as `ChatOpenAI.with_structured_output` makes it."""
    given = schema_of(schema)
    # OpenAI holds an answer to the schema only when asked to.
    described = convert_to_openai_function(given, strict=is_strict(given))
    described["schema"] = described.pop("parameters")
    return {"type": "json_schema", "json_schema": described}


def form_of_calls(tools: Sequence[BaseTool], choice: str) -> dict[str, Any]:
    """Return the form for an answer that calls one of the tools, or replies."""
    schema = {"name": "answer", "schema": answer_schema(tools, choice), "strict": False}
    return {"type": "json_schema", "json_schema": schema}
