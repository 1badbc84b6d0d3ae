"""Objects that a command or a file names by their modules, as in ``shop:refund``.

A store never names an object to import: a stored reference is only printed, for people to copy.
"""

import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

from langchain_core.tools import BaseTool

from ...graphs.common.errors import SpecError
from .functions import check_kind, make_tool


def import_object(reference: str, where: str) -> Any:  # noqa: ANN401  # any object
    """Import an object by ``module:name``. Modules of the working folder are found, too.

    Args:
        reference: The module and the name.
        where: The field or option that contains the reference, for an error.

    Raises:
        SpecError: The object can't be imported.
    """
    module, _, name = reference.partition(":")
    if not module.strip() or not name.strip() or "://" in reference:
        raise SpecError(f"{where}: {reference!r} names no object; write it as module:name")
    return _import(reference, where)


def _import(reference: str, where: str) -> Any:  # noqa: ANN401  # any object
    """Import a module, or an object of a module."""
    module, sign, name = reference.partition(":")
    if module.endswith(".py"):
        file = Path(module)
        there = "" if file.name == module else "run the command in its folder and "
        raise SpecError(
            f"{where}: {reference!r} is a file; {there}name its module, as "
            f"{file.stem + sign + name!r}"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return resolve_name(reference) if ":" in reference else import_module(reference)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        # Even SystemExit: a module must not end the program without a reason.
        raise SpecError(
            f"{where}: {reference!r} can't be imported: {type(error).__name__}: {error}; run the "
            "command in the folder of the module, or correct the name"
        ) from error


def import_tools(references: Iterable[str], where: str) -> list[BaseTool]:
    """Import tools by ``module``, with all its tools, or by ``module:name``.

    The tools of a module are its LangChain tools, and its own public functions with a docstring.
    A name can also be that of a list of tools.

    Raises:
        SpecError: An object can't be imported, or is no tool.
    """
    tools = dict[int, BaseTool]()
    for reference in references:
        if ":" in reference:
            named = import_object(reference, where)
            objects = named if isinstance(named, list | tuple) else [named]
        else:
            objects = _tools_of(_import(reference, where), where)
        for one in objects:
            tool = make_tool(one, f"{where}: {reference}")
            check_kind("tools", tool, f"{where}: {reference}")
            tools.setdefault(id(one), tool)
    return [*tools.values()]


def _tools_of(module: ModuleType, where: str) -> list[object]:
    """Return the tools and the functions of a module that can become tools."""
    found = [one for name, one in vars(module).items() if _is_tool(module, name, one)]
    if not found:
        raise SpecError(
            f"{where}: {module.__name__!r} contains no tool; add a docstring to a function, "
            f"or name an object as {module.__name__}:NAME"
        )
    return found


def _is_tool(module: ModuleType, name: str, one: object) -> bool:
    if isinstance(one, BaseTool):
        return True
    if name.startswith("_") or getattr(one, "__module__", None) != module.__name__:
        return False
    try:
        return isinstance(make_tool(one, name), BaseTool)
    except SpecError:
        # Other functions of the module need no docstring and may have any argument.
        return False


def reference_to(one: object) -> str | None:
    """Return the ``module:name`` by which another process can import an object, or None."""
    function = getattr(one, "func", None) or getattr(one, "coroutine", None) or one
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    # A program that runs as `__main__` would run again if it were imported.
    if module in (None, "__main__") or sys.modules.get(module) is None:
        return None
    found = getattr(sys.modules[module], name, None)
    return f"{module}:{name}" if found is one or found is function else None
