"""Running code in the session's sandbox, and what is kept of its interpreter between steps."""

from collections.abc import Mapping
from typing import Any, get_args

from ...graphs.common.errors import SpecError
from ...graphs.spec.sandbox import Kept, Language, Sandbox, new_key
from ...tools.sandbox import sandbox as sandboxes
from .call import CallResult


class Interpreter:
    """A session's interpreter within one step. Its runs come one after another."""

    def __init__(self, sandbox: Sandbox, kept: Mapping[str, Any] | None) -> None:
        self._sandbox = sandbox
        # A session of the same name in another store must not find these variables.
        self._kept = Kept.model_validate(kept) if kept else Kept(key=new_key())

    def keep(self, kept: Mapping[str, Any]) -> None:
        """Go on from what is kept of it after a run; nothing where there was none."""
        if kept:
            self._kept = Kept.model_validate(kept)

    def dumped(self) -> dict[str, Any]:
        """Give what is to be kept of it, as plain values; nothing where it has never run."""
        return self._kept.under(self._kept.key) if self._kept.started else {}

    async def run(self, language: Language, code: str) -> sandboxes.Ran:
        """Run code."""
        ran = await sandboxes.run(self._sandbox, language, code, self._kept)
        self._kept = ran.kept
        return ran

    async def run_block(self, language: str, code: str) -> CallResult:
        """Run a fenced block of a message; of one that can't be run, say so (AutoGen)."""
        if language not in get_args(Language):
            what = f"unknown language {language!r}" if language else "unlabelled code"
            text = (
                f"{what}: only python and shell can run; write one of them after the opening fence"
            )
            return CallResult(text, parsed={"exit_code": 1, "language": language})
        try:
            ran = await self.run("python" if language == "python" else "shell", code)
        except SpecError as error:
            return CallResult(str(error), parsed={"exit_code": 1, "language": language})
        return CallResult(ran.output, parsed={"exit_code": ran.exit_code, "language": language})
