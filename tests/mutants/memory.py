"""The product's functions in memory: they get the code of a fault without being imported again."""

import ast
import builtins
import copy
import functools
import gc
import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from mutants.changes import BODIES, statements
from mutants.faults import Function, Site


def code_of(module: CodeType, function: Function) -> CodeType:
    """Return a function's code within a compiled module."""
    waiting = [module]
    for code in waiting:
        inner = [one for one in code.co_consts if isinstance(one, CodeType)]
        for one in inner:
            if one.co_qualname == function.name and one.co_firstlineno == function.line:
                return one
        waiting += inner
    raise LookupError(function.name)


@functools.cache
def live_functions(root: Path) -> dict[tuple[str, str, int], list[FunctionType]]:
    """Return all functions in memory whose source is in the checkout."""
    found = defaultdict(list)
    real = functools.cache(os.path.realpath)
    for one in gc.get_objects():
        if isinstance(one, FunctionType):
            code = one.__code__
            key = (real(code.co_filename), code.co_qualname, code.co_firstlineno)
            found[key].append(one)
    return found


def put_in(root: Path, function: Function, tree: ast.Module) -> int:
    """Replace a function's code by its code in another tree; return how many objects it has."""
    path = str(root / function.path)
    live = live_functions(root)[os.path.realpath(path), function.name, function.line]
    for one in live:
        compiled = compile(tree, one.__code__.co_filename, "exec", dont_inherit=True)
        one.__code__ = code_of(compiled, function)
    return len(live)


def watch(root: Path, sites: Iterable[tuple[int, Site]], seen: set[int]) -> None:
    """Make each statement that has a fault record its number when it is reached."""
    builtins._reached = seen.add  # type: ignore[attr-defined]
    by_function: defaultdict[tuple[str, int], list[tuple[int, Site]]] = defaultdict(list)
    for number, site in sites:
        by_function[site.function.path, site.function.line].append((number, site))
    for noted in by_function.values():
        function = noted[0][1].function
        tree = copy.deepcopy(function.tree)
        (node,) = [
            one
            for one in ast.walk(tree)
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
            and (one.lineno, one.name) == (function.node.lineno, function.node.name)
        ]
        own = list(statements(node.body))
        for number, site in noted:
            note_reached(tree, own[site.place], number)
        put_in(root, function, ast.fix_missing_locations(tree))


def note_reached(tree: ast.Module, statement: ast.stmt, number: int) -> None:
    call = ast.parse(f"_reached({number})").body[0]
    ast.copy_location(call, statement)
    for parent in ast.walk(tree):
        for field in BODIES:
            body = getattr(parent, field, None)
            if isinstance(body, list) and statement in body:
                body.insert(body.index(statement), call)
                return
    raise LookupError(statement)


@functools.cache
def product_caches() -> list[Any]:
    """Return the caches of the product's functions."""
    return [
        one
        for one in gc.get_objects()
        if isinstance(one, functools._lru_cache_wrapper)
        and (getattr(one, "__module__", None) or "").startswith("duologue")
    ]


def forget_results() -> None:
    """Clear the caches of the product's functions."""
    for one in product_caches():
        one.cache_clear()
