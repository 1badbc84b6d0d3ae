"""The list of faults: drawn once from a seed, and found again in later versions of the code."""

import ast
import copy
import functools
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, NamedTuple

from mutants.changes import CHANGES, header_nodes, shape_of, source_of, statements

AREAS = {
    "rules": (80, ("graphs/rules",)),
    "log": (50, ("graphs/log",)),
    "text": (30, ("graphs/text",)),
    "turn": (45, ("nodes/turn",)),
    "store": (35, ("graphs/store",)),
}
"""For each area the number of drawn faults, and its folders when the list was drawn."""

WEIGHTS = {"swap_arguments": 0.5, "drop_return": 0.6, "move_boundary": 2, "swap_and_or": 1.5}
"""Weights of the changes: factors on the square root of the number of their places."""


class Function(NamedTuple):
    """A function or method at the top of its module, with the module's tree."""

    name: str
    path: str
    line: int
    node: ast.FunctionDef | ast.AsyncFunctionDef
    tree: ast.Module

    def statements(self) -> list[ast.stmt]:
        return list(statements(self.node.body))

    def sites(self) -> list["Site"]:
        return [Site(self, place) for place in range(len(self.statements()))]


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
            for site in function.sites():
                for change, node_at in site.changes():
                    by_change[change].append((site, node_at))
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
    """A stored fault in today's code: its place, and the way it was found."""

    site: Site
    change: str
    node_at: int
    how: str


ALIKE, SURELY_ALIKE = 0.6, 0.75
"""Least similarity of a statement's text in a function of the same name, and in any other function.
"""


class Code:
    """All functions of a checkout, for finding stored faults."""

    def __init__(self, functions: Sequence[Function]) -> None:
        self._named: defaultdict[str, list[Function]] = defaultdict(list)
        self._sites: defaultdict[str, list[Site]] = defaultdict(list)
        for function in functions:
            self._named[function.name].append(function)
            for place, statement in enumerate(function.statements()):
                self._sites[source_of(statement)].append(Site(function, place))

    def find(self, fault: dict[str, Any], chance: random.Random) -> Found | None:
        """Find a stored fault in its own statement, or in the statement that replaced it."""
        before = fault["before"]
        named = sorted(self._named[fault["function"]], key=lambda one: one.path != fault["module"])
        own = [site for one in named for site in one.sites()]
        if same := [site for site in own if source_of(site.statement) == before]:
            site = same[min(fault["occurrence"], len(same) - 1)]
            return Found(site, fault["change"], fault["node"], "same")
        if len(before) >= 30 and len(moved := self._sites[before]) == 1:
            return Found(moved[0], fault["change"], fault["node"], "renamed")
        alike = [site for site in own if shape_of(site.statement) == fault["shape"]]
        if len(alike) == 1 and (fault["change"], fault["node"]) in alike[0].changes():
            return Found(alike[0], fault["change"], fault["node"], "renamed")
        if found := nearest(fault, own, ALIKE) or nearest(fault, self._all(), SURELY_ALIKE):
            return found
        drawn = [(site, *change) for site in own for change in site.changes()]
        drawn = [one for one in drawn if one[1] == fault["change"]] or drawn
        # A private name may belong to a different function elsewhere.
        is_private = fault["function"].startswith("_")
        is_known = any(one.path == fault["module"] or not is_private for one in named)
        return Found(*chance.choice(drawn), "redrawn") if drawn and is_known else None

    def _all(self) -> list[Site]:
        return [site for sites in self._sites.values() for site in sites]


def nearest(fault: dict[str, Any], sites: Iterable[Site], least: float) -> Found | None:
    """Return the statement most like the stored one that allows the same kind of change."""
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(fault["before"])
    best: tuple[float, Site, int] | None = None
    for site in sites:
        matcher.set_seq1(source_of(site.statement))
        bar = max(least, best[0] if best else 0)
        if matcher.real_quick_ratio() <= bar or matcher.quick_ratio() <= bar:
            continue
        places = [node_at for change, node_at in site.changes() if change == fault["change"]]
        if places and (ratio := matcher.ratio()) > bar:
            best = ratio, site, min(places, key=lambda place: abs(place - fault["node"]))
    return Found(best[1], fault["change"], best[2], "rewritten") if best else None


def find_all(
    faults: list[dict[str, Any]], seed: int, functions: list[Function]
) -> list[Found | None]:
    code = Code(functions)
    return [
        code.find(fault, random.Random(f"{seed} {at}"))  # noqa: S311
        for at, fault in enumerate(faults)
    ]
