"""Tools that run code in the session's sandbox."""

from typing import Annotated

from langchain_core.tools import tool
from langgraph.prebuilt import ToolRuntime
from pydantic import Field

from ..registry.hooks import ToolState
from ..sandbox.sandbox import Ran


@tool
async def python(
    code: Annotated[str, Field(description="Python code")], runtime: ToolRuntime[None, ToolState]
) -> str:
    """Run Python code. Returns the output and the value of the last line. Variables are kept."""
    return _told(await runtime.state["run_code"]("python", code))


@tool
async def shell(
    code: Annotated[str, Field(description="script for sh")],
    runtime: ToolRuntime[None, ToolState],
) -> str:
    """Run a shell script. Returns its output. Files in the working folder are kept."""
    return _told(await runtime.state["run_code"]("shell", code))


def _told(ran: Ran) -> str:
    output = ran.output if ran.output.strip() else "(no output)"
    return output if ran.exit_code == 0 else f"{output.rstrip()}\n(exit code {ran.exit_code})"


python.metadata = {"sandbox": ["python"]}
shell.metadata = {"sandbox": ["shell"]}
