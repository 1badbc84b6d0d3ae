"""The places outside the adapters that ask which kind of model they work with.

An adapter (`nodes/models/adapters`) answers such a question by a method or by data, so a new family
of models touches one file. ``python tests/model_kinds.py`` prints the places; the folder of another
checkout may follow.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

ROOT = Path(__file__).parents[1]
ADAPTERS = "nodes/models/adapters"

_BELOW = ("graphs/common/settings.py",)
"""Files below the rooms of the nodes that know a kind of model."""

_CLASSES = re.compile(
    r"(Base|Scripted|)Chat(Model|OpenAI|Anthropic|\w*Vertex\w*)|BaseLLM|BaseLanguageModel"
)
"""Classes of chat models that no adapter defines."""

_SUBJECTS = re.compile(r"(.*_)?(model|chat|llm|adapter|provider|family|label|host)s?")
"""Variables that contain a model, its name or its address."""

_PROVIDERS = re.compile(
    r"\b(gpt|o1|openai|azure|anthropic|claude|bedrock|gemini|google|groq|mistral|ollama|huggingface"
    r"|deepseek|embedded|gguf|llama)|\.openai\.com",
    re.IGNORECASE,
)
"""Words that name a provider or a family of models."""

_PROBES = ("startswith", "endswith", "removeprefix", "partition", "match", "fullmatch", "search")

Trees: TypeAlias = dict[str, ast.Module]
"""The code of the product, by file."""


class Place(NamedTuple):
    """A place in the code that asks for the kind of a model."""

    file: str
    """The file, from the folder of the project."""
    line: int
    """The line."""
    question: str
    """The question."""


class _Families(NamedTuple):
    """The questions that the code of the adapters answers."""

    classes: frozenset[str]
    """The classes of adapters."""
    flags: frozenset[str]
    """The truth values that adapters and their parts have."""
    optional: frozenset[str]
    """The fields that only some families have a value for."""
    predicates: frozenset[str]
    """Functions that return whether a model, or the name of one, is of a kind."""


def places_that_ask_the_model_kind(root: Path = ROOT) -> list[Place]:
    """Return the places outside the adapters that ask for the kind of a model.

    A place is a line that tests the class of a model, reads a truth value that an adapter has or
    that was passed on from there, calls a predicate about a model or its name, probes a model for
    an attribute, or compares the name of a model with a word for a provider.
    """
    trees = _trees(root)
    families = _families(trees)
    users = {
        file: tree
        for file, tree in trees.items()
        if not file.startswith(ADAPTERS) and _uses_models(file, tree)
    }
    passed = _passed_on(users, families)
    found: dict[tuple[str, int], Place] = {}
    for file, tree in users.items():
        words = passed | _assigned(tree, families, passed)
        for node in ast.walk(tree):
            for question in _questions(node, families, words):
                # A line asks once, however often it names the flag.
                line: int = getattr(node, "lineno", 0)
                found.setdefault((file, line), Place(file, line, question))
    return sorted(found.values())


def _trees(root: Path) -> Trees:
    files = (file for room in ("graphs", "nodes", "tools") for file in (root / room).rglob("*.py"))
    return {
        file.relative_to(root).as_posix(): ast.parse(file.read_text())
        for file in sorted(files)
        # The test kit is itself a model.
        if "nodes/testing" not in file.as_posix()
    }


def _uses_models(file: str, tree: ast.Module) -> bool:
    """Return whether a file uses models, so that names of flags in it mean the models' flags."""
    if file.startswith("nodes/") or file in _BELOW:
        return True
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return any("nodes.models" in (node.module or "") for node in imports)


def _families(trees: Trees) -> _Families:
    """Read the questions from the code of the models."""
    classes, flags, optional, predicates = set[str](), set[str](), set[str](), set[str]()
    for file, tree in trees.items():
        if not file.startswith("nodes/") and file not in _BELOW:
            continue
        is_adapters = file.startswith(ADAPTERS)
        names = ("name",) if is_adapters or file == "nodes/models/model.py" else ()
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and (is_adapters or node.name in ("Model", "Models")):
                classes |= {node.name} if is_adapters else set()
                flags |= {name for name, kind, _ in _typed(node) if re.match(r"bool\b", kind)}
                some = {name for name, kind, plain in _typed(node) if plain and "| None" in kind}
                optional |= some if is_adapters and not node.name.startswith("_") else set()
            elif isinstance(node, ast.FunctionDef) and node.returns:
                subjects = [each.arg for each in node.args.args]
                is_truth = re.match(r"bool\b|TypeGuard\b", ast.unparse(node.returns))
                if is_truth and any(_SUBJECTS.fullmatch(one) or one in names for one in subjects):
                    predicates.add(node.name)
    return _Families(*map(frozenset, (classes, flags, optional, predicates)))


def _typed(node: ast.ClassDef) -> Iterator[tuple[str, str, bool]]:
    """Yield the names of a class's fields and methods, their types, and which are fields."""
    for each in node.body:
        if isinstance(each, ast.AnnAssign):
            yield ast.unparse(each.target), ast.unparse(each.annotation), True
        elif isinstance(each, ast.FunctionDef) and each.returns:
            is_property = any(ast.unparse(one) == "property" for one in each.decorator_list)
            yield each.name, ast.unparse(each.returns), is_property


def _passed_on(users: Trees, families: _Families) -> frozenset[str]:
    """Return the names of parameters by which the truth values are passed on."""
    names = frozenset({"is_child"})
    while True:
        calls = (
            node for tree in users.values() for node in ast.walk(tree) if isinstance(node, ast.Call)
        )
        more = names | {
            each.arg
            for call in calls
            for each in call.keywords
            if each.arg and _is_flag(each.value, families, names)
        }
        if more == names:
            return names
        names = more


def _assigned(tree: ast.Module, families: _Families, passed: frozenset[str]) -> frozenset[str]:
    """Return the variables of a file that contain such a truth value."""
    values = (node for node in ast.walk(tree) if isinstance(node, ast.Assign))
    targets = (node.targets for node in values if _is_flag(node.value, families, passed))
    return frozenset(one.id for each in targets for one in each if isinstance(one, ast.Name))


def _is_flag(node: ast.expr, families: _Families, passed: frozenset[str]) -> bool:
    """Return whether an expression is one of the truth values."""
    match node:
        case ast.Attribute(attr=name):
            return name in families.flags or name in passed
        case ast.Name(id=name):
            return name in passed
        case ast.Call(func=function):
            name = function.attr if isinstance(function, ast.Attribute) else ast.unparse(function)
            return name in families.predicates | families.flags
        case ast.BoolOp(values=values):
            return any(_is_flag(one, families, passed) for one in values)
        case ast.UnaryOp(operand=operand):
            return _is_flag(operand, families, passed)
    return False


def _questions(node: ast.AST, families: _Families, words: frozenset[str]) -> Iterator[str]:
    """Yield the question that a part of the code asks, if it does."""
    match node:
        case ast.Attribute(attr=name, ctx=ast.Load()) if name in families.flags:
            yield f"{ast.unparse(node)}?"
        case ast.Name(id=name, ctx=ast.Load()) if name in words | families.predicates:
            yield f"{name}?"
        case ast.Compare(left=ast.Attribute(attr=name), comparators=[ast.Constant(None)]):
            if name in families.optional:
                yield f"{ast.unparse(node)}?"
        case ast.Compare(left=left, comparators=[*others]) if _names_kind([left, *others]):
            yield f"{ast.unparse(node)}?"
        case ast.MatchClass(cls=kinds) if _is_class_of_models(kinds, families):
            yield f"is it a {ast.unparse(kinds)}?"
        case ast.Call():
            if _asks(node, families):
                yield f"{ast.unparse(node)}?"


def _asks(call: ast.Call, families: _Families) -> bool:
    """Return whether a call tests the class of a model, or probes the model or its name."""
    match call:
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
            return _is_class_of_models(kinds, families)
        case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[subject, *_]):
            return _is_subject(subject)
        case ast.Call(func=ast.Attribute(attr=probe, value=subject), args=[*args]):
            return probe in _PROBES and _names_kind([subject, *args])
    return False


def _is_class_of_models(kinds: ast.expr, families: _Families) -> bool:
    words = re.findall(r"\w+", ast.unparse(kinds))
    return any(one in families.classes or _CLASSES.fullmatch(one) for one in words)


def _names_kind(parts: list[ast.expr]) -> bool:
    """Return whether a model or its name is compared with a word for a provider."""
    return any(map(_is_subject, parts)) and any(map(_names_provider, parts))


def _is_subject(node: ast.expr) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return _SUBJECTS.fullmatch(name.strip("_")) is not None or name == "name"
        case ast.Call(func=ast.Name(id="type" | "str"), args=[inner, *_]):
            return _is_subject(inner)
    return False


def _names_provider(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=str(text)):
            return _PROVIDERS.search(text) is not None
        case ast.Name(id=name) if name.isupper():
            return _PROVIDERS.search(name.strip("_")) is not None
        case ast.Tuple(elts=elements):
            return any(map(_names_provider, elements))
    return False


if __name__ == "__main__":
    places = places_that_ask_the_model_kind(Path(sys.argv[1]) if sys.argv[1:] else ROOT)
    for one in places:
        print(f"{one.file}:{one.line}: {one.question}")  # noqa: T201
    print(len(places))  # noqa: T201
