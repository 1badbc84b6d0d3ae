"""The small changes that make a fault: each changes one node in the header of a statement."""

import ast
import copy
import re
from collections.abc import Callable, Iterable, Iterator

NAME = re.compile(r"\w{1,20}")

FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
}
MOVED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
SYMMETRIC = {"isinstance", "min", "max", "zip"}
SWAPPED = {"any": "all", "all": "any", "min": "max", "max": "min"}


def flip_comparison(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in FLIPPED:
        return ast.Compare(
            node.left, [FLIPPED[type(node.ops[0])](), *node.ops[1:]], node.comparators
        )
    return None


def move_boundary(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in MOVED:
        return ast.Compare(node.left, [MOVED[type(node.ops[0])](), *node.ops[1:]], node.comparators)
    return None


def swap_and_or(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.BoolOp):
        return ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    return None


def negate_condition(node: ast.AST) -> ast.AST | None:
    """Negate a condition without a comparison or `not`, which other faults negate."""
    field = "ifs" if isinstance(node, ast.comprehension) else "test"
    tested = getattr(node, field, None)
    tested = tested[0] if isinstance(tested, list) and tested else tested
    if not tested or isinstance(tested, ast.Compare | ast.UnaryOp) or isinstance(node, ast.Assert):
        return None
    changed = copy.copy(node)
    negated = ast.UnaryOp(ast.Not(), tested)
    setattr(changed, field, [negated, *getattr(node, field)[1:]] if field == "ifs" else negated)
    return changed


def drop_not(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node.operand
    return None


def drop_statement(node: ast.AST) -> ast.AST | None:
    """Drop a statement, in a way that leaves its function the same free variables."""
    dropped = (ast.Continue, ast.Break, ast.Raise, ast.AugAssign, ast.Delete)
    is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await)
    is_field = isinstance(node, ast.Assign) and isinstance(
        node.targets[0], ast.Attribute | ast.Subscript
    )
    if isinstance(node, ast.stmt) and (is_call or is_field or isinstance(node, dropped)):
        return ast.If(ast.Constant(value=False), [node], [])
    return None


def drop_return(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.Return) or node.value is None:
        return None
    if isinstance(node.value, ast.Constant) and node.value.value is None:
        return None
    return ast.Return(ast.Constant(None))


def change_constant(node: ast.AST) -> ast.AST | None:
    match node:
        case ast.Constant(value=bool(value)):
            return ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            return ast.Constant(value + 1)
        case ast.Constant(value=str(value)) if NAME.fullmatch(value):
            return ast.Constant(f"{value}_")
    return None


def swap_arguments(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.Call) or len(node.args) < 2:
        return None
    first, second, *others = node.args
    name = ast.unparse(node.func)
    if isinstance(first, ast.Starred) or isinstance(second, ast.Starred) or name in SYMMETRIC:
        return None
    if ast.dump(first) == ast.dump(second):
        return None
    return ast.Call(node.func, [second, first, *others], node.keywords)


def swap_plus_minus(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        return ast.BinOp(node.left, op, node.right)
    return None


def swap_choice(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in SWAPPED:
        return ast.Call(ast.Name(SWAPPED[node.func.id], ast.Load()), node.args, node.keywords)
    return None


CHANGES: dict[str, Callable[[ast.AST], ast.AST | None]] = {
    change.__name__: change
    for change in (
        flip_comparison,
        move_boundary,
        swap_and_or,
        negate_condition,
        drop_not,
        drop_statement,
        drop_return,
        change_constant,
        swap_arguments,
        swap_plus_minus,
        swap_choice,
    )
}
BODIES = ("body", "orelse", "finalbody", "handlers", "cases")


def header_nodes(statement: ast.stmt) -> list[ast.AST]:
    """Return a statement's own nodes, without annotations and without the statements within it."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return []
    found: list[ast.AST] = [statement]
    for node in found:
        if isinstance(node, ast.JoinedStr):
            continue
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "ctx") or (node is statement and field in BODIES):
                continue
            if isinstance(node, ast.keyword) and node.arg == "strict":
                continue
            found += [
                one for one in (value if isinstance(value, list) else [value]) if is_node(one)
            ]
    return found


def is_node(value: object) -> bool:
    return isinstance(value, ast.AST)


def statements(body: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    """Yield all statements of a body in their order, with the statements of inner functions."""
    for node in body:
        if isinstance(node, ast.stmt):
            yield node
        for field in BODIES:
            inner = getattr(node, field, None)
            if isinstance(inner, list):
                yield from statements(inner)


def source_of(statement: ast.stmt) -> str:
    """Return a statement's header as source, in one form however it is laid out."""
    shown = copy.copy(statement)
    for field in BODIES:
        if isinstance(getattr(shown, field, None), list):
            setattr(shown, field, [ast.Expr(ast.Constant(...))] if field == "body" else [])
    return ast.unparse(ast.fix_missing_locations(shown))


def shape_of(statement: ast.stmt) -> str:
    """Return a statement's header without its names: the same when something in it was renamed."""
    dumped = "".join(ast.dump(node) for node in header_nodes(statement)[1:])
    shape = re.sub(r"\b(id|attr|arg)='\w+'", r"\1=_", dumped)
    return f"{type(statement).__name__}:{shape}"
