"""The world of a simulation: what the agent and the tools change, and what checks read."""

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from functools import wraps
from inspect import Parameter, signature
from typing import Any, Final

from ...tools.registry.functions import call
from ..common.errors import SpecError, name_type

_WORLD: Final = ContextVar[Any]("world")
"""The world of the simulation that runs."""

_PARAMETER: Final = "world"
"""The name of the parameter by which a tool of the user receives the world."""


def get_world() -> Any:  # noqa: ANN401  # any object
    """Return the world of the simulation that runs."""
    return _WORLD.get()


@asynccontextmanager
async def open_world(make: Callable[[], Any] | None) -> AsyncIterator[Any]:
    """Make a world, yield it, and close it if it is a context manager.

    Args:
        make: A function, sync or async, that returns the world or a context manager of it, or a
            generator function that yields the world once. The world is None if it is None.

    Raises:
        SpecError: The world can't be made or closed.
    """
    if make is None:
        yield None
        return
    name = name_of(make)
    if inspect.isgeneratorfunction(make):
        make = contextmanager(make)
    elif inspect.isasyncgenfunction(make):
        make = asynccontextmanager(make)
    made = await call("world", name, make)
    prefix = "a" if hasattr(made, "__aenter__") else ""
    enter, leave = (getattr(made, f"__{prefix}{step}__", None) for step in ("enter", "exit"))
    world = made if enter is None else await call("world", name, enter)

    async def close() -> None:
        if leave is not None:
            # As a fixture, it is closed in the same way after a failure.
            await call("world", name, leave, None, None, None)

    token = _WORLD.set(world)
    try:
        yield world
    except BaseException:
        # The first error is more important than one of closing.
        with suppress(SpecError):
            await close()
        raise
    else:
        await close()
    finally:
        _WORLD.reset(token)


def give_world(tool: Any) -> Any:  # noqa: ANN401  # any tool
    """Return a user's tool that receives the simulation's world.

    The parameter ``world`` of a function is hidden from models. Other tools are returned unchanged.
    """
    if not inspect.isroutine(tool) or _PARAMETER not in signature(tool).parameters:
        return tool
    shape = signature(tool)
    if inspect.iscoroutinefunction(tool):

        @wraps(tool)
        async def hidden(*args: Any, **given: Any) -> Any:  # noqa: ANN401
            return await tool(*args, **given, world=get_world())

    else:

        @wraps(tool)
        def hidden(*args: Any, **given: Any) -> Any:  # noqa: ANN401
            return tool(*args, **given, world=get_world())

    left = [one for name, one in shape.parameters.items() if name != _PARAMETER]
    hints = {name: hint for name, hint in tool.__annotations__.items() if name != _PARAMETER}
    hidden.__signature__ = shape.replace(parameters=left)  # type: ignore[attr-defined]
    hidden.__annotations__ = hints
    return hidden


def check_maker(make_agent: object, *, worldless: str = "") -> None:
    """Check a function that makes agents.

    Args:
        make_agent: The function.
        worldless: The name in errors of a scenario without a world. Empty if there is none.

    Raises:
        TypeError: It is no function.
        SpecError: It is a text, or it needs a world, and a scenario has none.
    """
    if not callable(make_agent):
        kind = SpecError if isinstance(make_agent, str) else TypeError
        raise kind(
            f"make_agent: must be a function, or its name as module:name, not "
            f"{name_type(make_agent)}"
        )
    first = _find_parameter(make_agent)
    if first is not None and first.default is first.empty and worldless:
        raise SpecError(
            f"make_agent: {name_of(make_agent)!r} needs a world, but {worldless} has none; set "
            "its field world, or remove the parameter"
        )


async def make_agent_for(make_agent: Callable[..., Any], world: object) -> Any:  # noqa: ANN401
    """Return the agent of one simulation. The function receives the world if it accepts it.

    Raises:
        SpecError: The function failed.
    """
    given = () if _find_parameter(make_agent) is None else (world,)
    made = await call("function", name_of(make_agent), make_agent, *given)
    if made is None:
        raise SpecError(f"make_agent: {name_of(make_agent)!r} returned None; return the agent")
    return made


def _find_parameter(make_agent: Callable[..., Any]) -> Parameter | None:
    """Return the parameter that receives the world, or None."""
    try:
        first = next(iter(signature(make_agent).parameters.values()), None)
    except (TypeError, ValueError):
        # Some functions written in C have no signature.
        return None
    if first is None or first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        return None
    is_needed = first.default is first.empty
    return first if is_needed or first.name == _PARAMETER else None


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function, or of the class of another callable."""
    return getattr(function, "__name__", None) or type(function).__name__
