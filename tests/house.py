"""Count how many places one idea takes: `python tests/house.py` prints a table.

No test fails by these figures: they show in how many places the next change of an idea is made.
`--list WORD` prints the places of the rows whose name contains the word. Only code is counted, not
docstrings, comments and the list of public names. `python tests/house.py lines` prints the lines of
code and the modules of each folder, `python tests/house.py names` the functions whose name is no
verb with an object and no noun: a participle, an adverb or a preposition.
"""

import argparse
import ast
import asyncio
import builtins
import io
import os
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]

FOLDERS = ("graphs", "nodes", "tools")
"""The folders of the product."""

OPTIONS = ("max_iterations", "min_iterations", "max_tool_rounds", "seed")
"""Options of a conversation. The table counts the files that name them."""

IMPORT_ROUNDS = 7
"""Number of measurements of each import; the smallest counts."""

Function = ast.FunctionDef | ast.AsyncFunctionDef

_OF_BUILT_IN_TYPES = {name for kind in (dict, list, set, str) for name in dir(kind)}
"""Names of methods, such as `get`, whose calls rarely mean the product's own methods."""

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    name: str
    figure: str
    aim: str = ""
    places: Sequence[str] = ()


@dataclass(frozen=True)
class Module:
    """A module of the product, parsed."""

    path: Path
    tree: ast.Module
    lines: int

    @property
    def file(self) -> str:
        """Return the path from the root of the checkout."""
        return str(self.path.relative_to(ROOT))

    @property
    def room(self) -> str:
        """Return the room: a folder of `graphs`, or a whole package."""
        first, second, *_ = *self.path.relative_to(ROOT).with_suffix("").parts, ""
        return f"{first}.{second}" if first == "graphs" else first

    @cached_property
    def words(self) -> Counter[str]:
        """Return the identifiers and whole strings of the code."""
        return Counter(_words_of(self.tree))

    @cached_property
    def functions(self) -> tuple[tuple[Function, ast.ClassDef | None], ...]:
        """Return the functions that are more than a declaration, each with its class or None."""
        owners = {
            id(member): node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ClassDef)
            for member in node.body
        }
        found = [node for node in ast.walk(self.tree) if isinstance(node, Function)]
        return tuple(
            (one, owners.get(id(one))) for one in found if _has_code(one, owners.get(id(one)))
        )


def read_modules() -> list[Module]:
    """Parse all modules of the product."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    texts = {path: path.read_text() for path in paths}
    return [Module(path, ast.parse(text), text.count("\n")) for path, text in texts.items()]


def _words_of(tree: ast.Module) -> Iterator[str]:
    docs = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.keyword(arg=str(name)) | ast.alias(name=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name) | ast.MatchClass(cls=ast.Name(id=name)):
                yield name
            case ast.Constant(value=str(text)) if id(node) not in docs:
                # An error that names a field is one more place that knows it, but an ordinary word
                # in a sentence is not.
                found = _IDENTIFIER.findall(text)
                is_path = re.fullmatch(r"[\w.]+", text)
                yield from (word for word in found if is_path or "_" in word)


def files_naming(name: str, modules: Sequence[Module]) -> list[str]:
    """Return the files whose code contains a name."""
    return [module.file for module in modules if name in module.words]


# --- Ends, guards, options, rooms ---


def ends(modules: Sequence[Module]) -> list[str]:
    """Return the names of the classes of ends, which derive from `BaseEnd`."""
    bases = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
    }
    found, known = set[str](), {"BaseEnd"}
    while new := {name for name in bases if bases[name] & known} - found:
        found |= new
        known |= new
    # Base classes of other ends are no ends themselves.
    of_others = set[str]().union(*(bases[name] for name in found))
    return sorted(name for name in found - of_others if name[0] != "_")


def guards(modules: Sequence[Module]) -> list[str]:
    """Return the names of the guards: the fields of `Guards`."""
    return [
        field.target.id
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and node.name == "Guards"
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    ]


def row_of_names(what: str, names: Collection[str], aim: str, modules: Sequence[Module]) -> Row:
    """Count the files that contain each of some names."""
    found = {name: files_naming(name, modules) for name in names}
    counts = sorted(map(len, found.values()))
    figure = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
    places = [f"{name}: {len(files)}: {', '.join(files)}" for name, files in found.items()]
    return Row(what, figure, aim, places)


def rows_of_rooms(modules: Sequence[Module]) -> Iterator[Row]:
    """Count the layers of the import contract, and the imports that violate them.

    A room is as high as its highest layer.
    """
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers: list[str] = next(one["layers"] for one in contracts if one["type"] == "layers")
    heights: dict[str, int] = {}
    for height, layer in enumerate(reversed(layers)):
        for part in layer.split(" : "):
            room = part if part.startswith("graphs.") else part.partition(".")[0]
            heights[room] = height
    upwards = defaultdict[tuple[str, str], list[str]](list)
    for module in modules:
        for room in _imported_rooms(module):
            if heights.get(room, -1) > heights.get(module.room, len(layers)):
                upwards[module.room, room].append(module.file)
    places = [f"{here} -> {there}: {', '.join(files)}" for (here, there), files in upwards.items()]
    yield Row("imports of a room that run upwards", str(len(upwards)), "0", places)
    yield Row("layers of the import contract", str(len(layers)), "16", layers)


def _imported_rooms(module: Module) -> set[str]:
    package = module.path.parent
    found = set[str]()
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        start = package.parents[node.level - 2] if node.level > 1 else package
        parts = start.relative_to(ROOT).parts + tuple((node.module or "").split("."))
        parts = tuple(part for part in parts if part)
        # `from .. import x` only names the room in its imported names.
        for name in [alias.name for alias in node.names] if len(parts) == 1 else [""]:
            whole = (*parts, name)
            found.add(f"graphs.{whole[1]}" if whole[0] == "graphs" else whole[0])
    return found


# --- Arguments and calls that are passed on ---


def _code(function: Function) -> list[ast.stmt]:
    """Return a function's statements without its docstring."""
    first = function.body[0]
    is_doc = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return function.body[1:] if is_doc else function.body


def _decorators(function: Function) -> set[str]:
    return {ast.unparse(one).partition("(")[0] for one in function.decorator_list}


def _has_code(function: Function, owner: ast.ClassDef | None) -> bool:
    """Return whether a function is more than a declaration."""
    if owner is not None and any("Protocol" in ast.unparse(base) for base in owner.bases):
        return False
    if _decorators(function) & {"overload", "abstractmethod"}:
        return False
    code = _code(function)
    return bool(code) and not (len(code) == 1 and isinstance(code[0], ast.Raise))


def _parameters(function: Function) -> list[str]:
    given = function.args
    known = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return [one.arg for one in known if one is not None and one.arg not in ("self", "cls")]


def _arguments(call: ast.Call) -> list[ast.expr]:
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return [one.value if isinstance(one, ast.Starred) else one for one in given]


def row_of_parameters(modules: Sequence[Module]) -> Row:
    """Count the parameters that are only passed on, unchanged, to other calls.

    A call of a built-in function, such as `len`, uses its argument.
    """
    total, places = 0, list[str]()
    for module in modules:
        for function, _ in module.functions:
            passed = _passed_on(function)
            total += len(_parameters(function))
            places += [
                f"{module.file}:{function.lineno} {function.name}({name})" for name in passed
            ]
    share = f"{100 * len(places) / total:.1f} %"
    return Row("parameters only passed on", f"{share} ({len(places)} of {total})", "20 %", places)


def _passed_on(function: Function) -> list[str]:
    arguments = {
        id(argument)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and not _is_builtin(node.func)
        for argument in _arguments(node)
    }
    uses = defaultdict[str, list[bool]](list)
    for statement in _code(function):
        for node in ast.walk(statement):
            if isinstance(node, ast.Name):
                uses[node.id].append(id(node) in arguments)
    return [name for name in _parameters(function) if uses[name] and all(uses[name])]


def _is_builtin(called: ast.expr) -> bool:
    return isinstance(called, ast.Name) and hasattr(builtins, called.id)


def rows_of_forwarders(modules: Sequence[Module]) -> Iterator[Row]:
    """Count the functions whose whole body is one call without a computed argument.

    The functions that only forward call another function of the product, and no interface requires
    them. They include no properties, special methods, methods of a class with a base, and calls of
    classes.
    """
    known = {function.name for module in modules for function, _ in module.functions}
    one_call, forwarding = list[str](), list[str]()
    for module in modules:
        own = _own_functions(module)
        for function, owner in module.functions:
            call = _only_call(function)
            if call is None:
                continue
            place = f"{module.file}:{function.lineno} {function.name} -> {ast.unparse(call)}"
            one_call.append(place)
            name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            is_own = name in known and name not in _OF_BUILT_IN_TYPES
            is_own = is_own or (isinstance(call.func, ast.Name) and call.func.id in own)
            if is_own and not _is_prescribed(function, owner):
                forwarding.append(place)
    yield Row("functions that only forward", str(len(forwarding)), "60", forwarding)
    yield Row("functions of one call without a computed argument", str(len(one_call)), "", one_call)


def row_of_single_uses(modules: Sequence[Module]) -> Row:
    """Find the private functions of at most six lines that the product calls in one place.

    A function that is passed on, such as a validator, is left out.
    """
    uses = sum((module.words for module in modules), Counter[str]())
    calls = (
        one for module in modules for one in ast.walk(module.tree) if isinstance(one, ast.Call)
    )
    called = {ast.unparse(call.func).rpartition(".")[2] for call in calls}
    places = [
        f"{module.file}:{function.lineno} {function.name}"
        for module in modules
        for function, _ in module.functions
        if function.name in called and re.match("_[^_]", function.name)
        if not function.decorator_list and uses[function.name] == 2  # its definition and its use
        if _lines_of(_code(function)) <= 6
    ]
    return Row("short private functions with one call", str(len(places)), "90", places)


def _lines_of(code: Sequence[ast.stmt]) -> int:
    return (code[-1].end_lineno or 0) - code[0].lineno + 1


def _own_functions(module: Module) -> set[str]:
    imported = {
        alias.asname or alias.name
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    }
    # A call of a class creates an object.
    named = imported | {function.name for function, _ in module.functions}
    return {name for name in named if not name.lstrip("_")[:1].isupper()}


def _is_prescribed(function: Function, owner: ast.ClassDef | None) -> bool:
    is_special = function.name.startswith("__") or _decorators(function)
    return bool(is_special or (owner is not None and owner.bases))


def _only_call(function: Function) -> ast.Call | None:
    code = _code(function)
    if len(code) != 1 or not isinstance(code[0], ast.Return | ast.Expr):
        return None
    call = code[0].value
    call = call.value if isinstance(call, ast.Await) else call
    if not isinstance(call, ast.Call):
        return None
    return call if all(map(_is_plain, _arguments(call))) else None


def _is_plain(argument: ast.expr) -> bool:
    while isinstance(argument, ast.Attribute):
        argument = argument.value
    return isinstance(argument, ast.Name | ast.Constant)


# --- Measurements ---


def row_of_import() -> Row:
    """Compare the CPU of `from duologue import converse` with that of importing LangGraph."""
    commands = {"ours": "from duologue import converse", "theirs": "import langgraph.graph"}
    spent = {name: list[float]() for name in commands}
    # Compiling all imports at each start would cost more than the import.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(ROOT / ".pytest_cache" / "bytecode")
    for command in commands.values():
        _cpu_of(command)
    for _ in range(IMPORT_ROUNDS):
        for name, command in commands.items():
            spent[name].append(_cpu_of(command))
    ours, theirs = min(spent["ours"]), min(spent["theirs"])
    figure = f"{ours / theirs:.2f} ({ours:.2f} s of {theirs:.2f} s)"
    return Row("CPU to import `converse`, of `import langgraph.graph`", figure, "1.25")


def _cpu_of(code: str) -> float:
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{code}: exit code {process.returncode}")
    return usage.ru_utime + usage.ru_stime


async def rows_of_utterance() -> list[Row]:
    """Count the modules and frames that an utterance of a role-play takes."""
    from benchmarks.test_counts import FEW, MANY, frames_of

    kind = "two with a format"
    await frames_of(2, kind)
    more = await frames_of(MANY, kind) - await frames_of(FEW, kind)
    places = Counter[str]()
    for (module, _), count in more.items():
        places[module] += count
    frames = more.total() / (MANY - FEW)
    per_module = [f"{module}: {count / (MANY - FEW):.1f}" for module, count in places.most_common()]
    return [
        Row("modules of a role-play utterance", str(len(places)), "50", per_module),
        Row("own frames of a role-play utterance", f"{frames:,.0f}", "950"),
    ]


# --- Lines of code ---

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}


def count_lines_of_code(text: str) -> int:
    """Count the lines of a module with code: no docstrings, comments and blank lines."""
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in _NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant | ast.JoinedStr):
            lines.difference_update(range(node.lineno, (node.end_lineno or 0) + 1))
    return len(lines)


def rows_of_lines() -> Iterator[Row]:
    """Count the lines of code and the modules of product and tests, as a whole and by folder."""
    for name, folders in (("all of the product", FOLDERS), ("all of the tests", ("tests",))):
        counts = defaultdict[str, list[int]](list)
        for path in sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py")):
            folder = "/".join(path.relative_to(ROOT).parts[:-1][:2])
            lines = count_lines_of_code(path.read_text())
            counts[name].append(lines)
            counts[folder].append(lines)
        for folder, found in counts.items():
            yield Row(folder, f"{sum(found):7,} lines in {len(found):3} modules")


PUBLIC_MODULES = {
    "duologue",
    "duologue.graphs",
    "duologue.graphs.events",
    "duologue.graphs.scenarios",
    "duologue.nodes.testing",
    "duologue.nodes.testing.server",
    "duologue.tools",
}
"""The modules that the documentation names."""


_PATCHED = re.compile(r"duologue(\.\w+)+")
"""The full name of an object, as `monkeypatch.setattr` takes it."""


def row_of_private_imports() -> Row:
    """Measure the share of the test code that is in files which import private modules."""
    private, all_lines = dict[str, int](), 0
    for path in sorted((ROOT / "tests").rglob("*.py")):
        lines = count_lines_of_code(path.read_text())
        all_lines += lines
        if not PUBLIC_MODULES.issuperset(_product_modules(ast.parse(path.read_text()))):
            private[str(path.relative_to(ROOT))] = lines
    places = [f"{lines:3} {file}" for file, lines in sorted(private.items())]
    share = f"{sum(private.values()) / all_lines:.1%}"
    return Row("test code in files that import private modules", share, "45 %", places)


def _product_modules(tree: ast.Module) -> Iterator[str]:
    """Yield the modules of the product that a file imports, or names to patch them."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if _PATCHED.fullmatch(text):
                names = [text.rpartition(".")[0]]
            case ast.ImportFrom(module=str(module), level=0):
                yield from (f"{module}.{one.name}" for one in node.names if _is_module(module, one))
                names = [module]
            case ast.Import():
                names = [one.name for one in node.names]
            case _:
                continue
        yield from (name for name in names if name.split(".")[0] == "duologue")


def _is_module(package: str, imported: ast.alias) -> bool:
    """Tell whether a package has such a module, and exports no such name."""
    folder = ROOT.joinpath(*package.split(".")[1:])
    stub = folder / "__init__.pyi"
    if package.split(".")[0] != "duologue" or (
        stub.exists() and imported.name in stub.read_text().split()
    ):
        return False
    path = folder / imported.name
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


# --- Names ---

_WORDS = tomllib.loads(Path(__file__).with_name("name_words.toml").read_text())


def _is_participle(word: str) -> bool:
    has_ending = len(word) > 3 and word.endswith(("ed", "ing"))
    return word in _WORDS["participles"] or (has_ending and word not in _WORDS["no_participles"])


def _is_adverb(word: str) -> bool:
    return word in _WORDS["adverbs"] or (word.endswith("ly") and word not in _WORDS["no_adverbs"])


def is_no_name(name: str) -> bool:
    """Tell whether a name has neither a verb nor a noun, or begins with a preposition."""
    words = [word for word in name.lower().split("_") if word]
    if not words or name.startswith("__"):
        return False
    prepositions = _WORDS["prepositions"]
    return words[0] in prepositions or all(
        word in prepositions or _is_participle(word) or _is_adverb(word) for word in words
    )


def rows_of_names(modules: Sequence[Module]) -> Iterator[Row]:
    """Find the functions whose name is a participle, an adverb or a preposition, by folder."""
    public = {*_words_of(ast.parse((ROOT / "__init__.py").read_text())), *_WORDS["public"]}
    for module in modules:
        for function, owner in module.functions:
            if function.name not in public and is_no_name(function.name):
                name = f"{owner.name}.{function.name}" if owner else function.name
                yield Row(name, f"{module.file}:{function.lineno}")


# --- The table ---


def rows(modules: Sequence[Module], *, measured: bool) -> Iterator[Row]:
    """Count everything, one row after the other."""
    yield from rows_of_rooms(modules)
    yield row_of_names("files that name an end", ends(modules), "2", modules)
    yield row_of_names("files that name a guard", guards(modules), "2", modules)
    for option in OPTIONS:
        yield row_of_names(f"files that name `{option}`", [option], "6", modules)
    yield row_of_parameters(modules)
    yield from rows_of_forwarders(modules)
    yield row_of_single_uses(modules)
    yield row_of_private_imports()
    if measured:
        yield from asyncio.run(rows_of_utterance())
        yield row_of_import()
    yield Row("modules", str(len(modules)))
    yield Row("lines", f"{sum(module.lines for module in modules):,}")
    longest = max(modules, key=lambda module: module.lines)
    yield Row("lines of the longest module", f"{longest.lines} ({longest.file})", "500")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--list", metavar="WORD", help="print the places of the rows with this word"
    )
    parser.add_argument("--quick", action="store_true", help="only read code, and run nothing")
    parser.add_argument("mode", nargs="?", choices=["lines", "names"], help="print another list")
    given = parser.parse_args()
    match given.mode:
        case "lines":
            found = [*rows_of_lines()]
        case "names":
            found = [*rows_of_names(read_modules())]
        case _:
            found = [*rows(read_modules(), measured=not given.quick)]
    width = max((len(row.name) for row in found), default=0)
    for row in found:
        aim = f"  (aim: {row.aim})" if row.aim else ""
        sys.stdout.write(f"{row.name:{width}}  {row.figure}{aim}\n")
        if given.list and given.list in row.name:
            sys.stdout.writelines(f"    {place}\n" for place in row.places)


if __name__ == "__main__":
    main()
