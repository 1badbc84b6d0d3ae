"""What the fields of a model mean, by the strings below them in its source.

Pydantic can read these itself (`use_attribute_docstrings`), but does so when a class is made, which
took a third of the time of importing all models. Only a JSON schema shows them.
"""

import ast
import inspect
from functools import cache
from itertools import pairwise
from textwrap import dedent

from pydantic import BaseModel


def field_docs(model: type[BaseModel]) -> dict[str, str]:
    """Give the description of each field that has one."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            found |= _own_docs(base)
    fields = model.model_fields.items()
    return found | {name: field.description for name, field in fields if field.description}


@cache
def _own_docs(model: type[BaseModel]) -> dict[str, str]:
    try:
        (tree,) = ast.parse(dedent(inspect.getsource(model))).body
    except (OSError, TypeError):  # made where there is no source
        return {}
    assert isinstance(tree, ast.ClassDef)  # noqa: S101  # what `getsource` finds
    found = {}
    for field, below in pairwise(tree.body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = inspect.cleandoc(text)
    return found
