"""The list of faults: drawn once from a seed, found again in whatever the code has become."""

import ast
import copy
import functools
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mutants.changes import CHANGES, header_nodes, shape_of, source_of, statements

AREAS = {
    "rules": (80, ("graphs/rules",)),
    "log": (50, ("graphs/log",)),
    "text": (30, ("graphs/text",)),
    "turn": (45, ("nodes/turn", "nodes/step")),
    "store": (35, ("graphs/store",)),
}
"""How many faults are drawn in each area, and its folders when the list was drawn."""

WEIGHTS = {"swap_arguments": 0.5, "drop_return": 0.6, "move_boundary": 2, "swap_and_or": 1.5}
"""How much more or less often a change is drawn than by the root of the number of its places."""


class Function(NamedTuple):
    """A function or method at the top of its module, with the module's tree."""

    name: str
    path: str
    line: int
    node: ast.FunctionDef | ast.AsyncFunctionDef
    tree: ast.Module

    def statements(self) -> list[ast.stmt]:
        return list(statements(self.node.body))


class Site(NamedTuple):
    """A statement of a function, by its place among all of them."""

    function: Function
    place: int

    @property
    def statement(self) -> ast.stmt:
        return self.function.statements()[self.place]

    def changes(self) -> list[tuple[str, int]]:
        """Return the changes that this statement allows, each with the place of its node."""
        nodes = header_nodes(self.statement)
        if isinstance(nodes and nodes[0], ast.Assert):
            return []
        return [
            (name, place)
            for place, node in enumerate(nodes)
            for name, change in CHANGES.items()
            if change(node) is not None
        ]


@functools.cache
def functions_of(root: Path, path: str) -> tuple[Function, ...]:
    """Return a module's functions and methods."""
    tree = ast.parse((root / path).read_text(), str(root / path))
    found: list[Function] = []

    def look(body: Sequence[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                look(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                line = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                found.append(Function(prefix + node.name, path, line, node, tree))

    look(tree.body, "")
    return tuple(found)


def all_functions(root: Path, folders: Iterable[str]) -> list[Function]:
    paths = sorted(path for folder in folders for path in (root / folder).rglob("*.py"))
    return [one for path in paths for one in functions_of(root, str(path.relative_to(root)))]


def changed_tree(site: Site, change: str, node_at: int) -> tuple[ast.Module, str]:
    """Return the module's tree with the change in it, and the source of the changed statement."""
    tree = copy.deepcopy(site.function.tree)
    (node,) = [
        one
        for one in ast.walk(tree)
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
        and one.lineno == site.function.node.lineno
        and one.name == site.function.node.name
    ]
    statement = list(statements(node.body))[site.place]
    old = header_nodes(statement)[node_at]
    new = CHANGES[change](old)
    assert new is not None
    replace_node(tree, old, ast.copy_location(new, old))
    ast.fix_missing_locations(tree)
    after = new if old is statement else statement
    assert isinstance(after, ast.stmt)
    return tree, source_of(after)


def replace_node(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, field, new)
            elif isinstance(value, list):
                value[:] = [new if one is old else one for one in value]


def draw(root: Path, seed: int) -> dict[str, Any]:
    """Draw the list: in each area first the kind of a change, then one of its statements."""
    chance = random.Random(seed)  # noqa: S311
    faults: list[dict[str, Any]] = []
    for area, (count, folders) in AREAS.items():
        by_change = defaultdict(list)
        for function in all_functions(root, folders):
            for place in range(len(function.statements())):
                for change, node_at in Site(function, place).changes():
                    by_change[change].append((Site(function, place), node_at))
        taken: set[tuple[str, int, int]] = set()
        while len(taken) < count:
            kinds = sorted(by_change)
            weights = [WEIGHTS.get(kind, 1) * len(by_change[kind]) ** 0.5 for kind in kinds]
            change = chance.choices(kinds, weights)[0]
            site, node_at = chance.choice(by_change[change])
            key = (site.function.path, site.function.line, site.place)
            # Without a field that its constructor sets, no object works.
            is_field = change == "drop_statement" and site.function.name.endswith("__init__")
            if key not in taken and not is_field:
                taken.add(key)
                faults.append(described(area, site, change, node_at))
    return {"seed": seed, "faults": faults}


def described(area: str, site: Site, change: str, node_at: int) -> dict[str, Any]:
    before = source_of(site.statement)
    same = [source_of(one) for one in site.function.statements()[: site.place]]
    return {
        "area": area,
        "module": site.function.path,
        "function": site.function.name,
        "change": change,
        "node": node_at,
        "before": before,
        "occurrence": same.count(before),
        "shape": shape_of(site.statement),
        "after": changed_tree(site, change, node_at)[1],
    }


class Found(NamedTuple):
    """A stored fault in today's code: where it is, and how it was found."""

    site: Site
    change: str
    node_at: int
    how: str


def find(
    fault: dict[str, Any],
    chance: random.Random,
    functions: list[Function],
    by_source: dict[str, list[Site]],
) -> Found | None:
    """Find a stored fault: the same statement, one that differs in names alone, or a new one."""
    named = [one for one in functions if one.name == fault["function"]]
    named.sort(key=lambda one: one.path != fault["module"])
    change, node_at = fault["change"], fault["node"]
    for function in named:
        same = sites_with(function, source_of, fault["before"])
        if same:
            return Found(same[min(fault["occurrence"], len(same) - 1)], change, node_at, "same")
    moved = by_source.get(fault["before"], [])
    if len(moved) == 1 and len(fault["before"]) >= 30:
        return Found(moved[0], change, node_at, "renamed")
    for function in named:
        same = sites_with(function, shape_of, fault["shape"])
        if len(same) == 1 and (change, node_at) in same[0].changes():
            return Found(same[0], change, node_at, "renamed")
    drawn = [
        (name == change, Site(function, place), name, at)
        for function in named
        for place in range(len(function.statements()))
        for name, at in Site(function, place).changes()
    ]
    if not drawn:
        return None
    alike = [one for one in drawn if one[0]] or drawn
    _, site, change, node_at = chance.choice(alike)
    return Found(site, change, node_at, "redrawn")


def find_all(
    faults: list[dict[str, Any]], seed: int, functions: list[Function]
) -> list[Found | None]:
    by_source = defaultdict(list)
    for function in functions:
        for place, statement in enumerate(function.statements()):
            by_source[source_of(statement)].append(Site(function, place))
    return [
        find(fault, random.Random(f"{seed} {at}"), functions, by_source)  # noqa: S311
        for at, fault in enumerate(faults)
    ]


def sites_with(function: Function, read: Callable[[ast.stmt], str], wanted: str) -> list[Site]:
    places = enumerate(function.statements())
    return [Site(function, place) for place, one in places if read(one) == wanted]
