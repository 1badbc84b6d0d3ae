"""Tools that every conversation can name.

They run code in the session's sandbox, compare numbers, calculate, tell the time, and return the
earlier messages of the session (LazyLLM's get_history).
"""

import ast
from datetime import UTC, datetime
from typing import Annotated, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from langchain_core.tools import ToolException, tool
from langgraph.prebuilt import ToolRuntime
from pydantic import Field

from ..graphs.conversation.sandbox import Kept, Sandbox
from ..graphs.log.transcript import format_line
from .registry.hooks import ArgumentsError, ToolState
from .sandbox import sandbox
from .sandbox.sandbox import Ran


@tool
def get_history(
    runtime: ToolRuntime[None, ToolState],
    limit: Annotated[int, Field(ge=1, le=100, description="number of messages")] = 5,
) -> str:
    """Return the latest messages of this conversation, one per line.

    Further lines of a message are indented.
    """
    said = [message for message in runtime.state["messages"] if message.name]
    lines = [format_line(message.name, message.text) for message in said[-limit:]]
    return "\n".join(lines) or "There are no messages yet."


_FAR: Final = 1_000_000
"""Largest absolute value of a number that `high_low` accepts. Small models sometimes write endless
digits.
"""

_SECONDS: Final = 2.0
"""Time limit of a calculation in seconds. A tower of powers would never finish."""

_ARITHMETIC: Final = (
    *(ast.Expression, ast.BinOp, ast.UnaryOp, ast.Constant),
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.UAdd, ast.USub),
)


@tool
def high_low(
    secret_number: Annotated[int, Field(description="secret number", ge=-_FAR, le=_FAR)],
    guessed_number: Annotated[int, Field(description="guess", ge=-_FAR, le=_FAR)],
) -> str:
    """Compare the secret number with a guess: higher, lower or equal."""
    if secret_number == guessed_number:
        return "The guess is right: you won!"
    way = "higher" if secret_number > guessed_number else "lower"
    return f"The secret number is {way} than {guessed_number}."


@tool
async def calculator(
    expression: Annotated[str, Field(description='for example "(3 + 4) * 2"')],
) -> str:
    """Calculate an expression of numbers, + - * / // % ** and brackets."""
    _check_arithmetic(expression)
    apart = Sandbox(level="monty", seconds=_SECONDS)
    ran = await sandbox.run(apart, "python", expression.strip(), Kept(key="calculator"))
    if ran.exit_code:
        raise ToolException(ran.output.strip().splitlines()[-1])
    return ran.output.strip()


def _check_arithmetic(expression: str) -> None:
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ArgumentsError(f"{expression!r} is not an expression of numbers") from error
    for node in ast.walk(tree):
        number = not isinstance(node, ast.Constant) or type(node.value) in (int, float)
        if not isinstance(node, _ARITHMETIC) or not number:
            raise ArgumentsError(
                f"{expression!r} contains more than numbers, + - * / // % ** and ()"
            )


@tool
def clock(
    timezone: Annotated[str, Field(description='for example "Europe/Paris"')] = "UTC",
) -> str:
    """Return the current date and time."""
    try:
        zone = UTC if timezone == "UTC" else ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ArgumentsError(f"there is no time zone {timezone!r}; UTC is always known") from error
    return f"{datetime.now(zone):%A, %Y-%m-%d %H:%M:%S %Z}"


@tool
async def python(
    code: Annotated[str, Field(description="Python code")], runtime: ToolRuntime[None, ToolState]
) -> str:
    """Run Python code. Returns the output and the value of the last line. Variables are kept."""
    return _describe_run(await runtime.state["run_code"]("python", code))


@tool
async def shell(
    code: Annotated[str, Field(description="script for sh")],
    runtime: ToolRuntime[None, ToolState],
) -> str:
    """Run a shell script. Returns its output. Files in the working folder are kept."""
    return _describe_run(await runtime.state["run_code"]("shell", code))


def _describe_run(ran: Ran) -> str:
    output = ran.output if ran.output.strip() else "(no output)"
    return output if ran.exit_code == 0 else f"{output.rstrip()}\n(exit code {ran.exit_code})"


python.metadata = {"sandbox": ["python"]}
shell.metadata = {"sandbox": ["shell"]}
