"""The commands that the command line suggests, or the Python calls where no command would work."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..common.addresses import show_address
from ..common.sanitize import clean

if TYPE_CHECKING:
    from ..session.options import Options
    from ..store.rows import SessionRow

_RUNS = ("resume", "answer")
"""The commands that run a session, and therefore need its model and its tools."""


@dataclass(frozen=True)
class FollowUp:
    """The options that are added to suggested commands, because no session stores them."""

    store: str | None = None
    """The store that was passed as an option, or None."""
    model: str | None = None
    """The model that was passed as an option, or None."""
    tools: Sequence[str] = ()
    """The modules of tools, as the option --tools names them."""
    in_python: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The names of the objects that the session needs, by kind, if a command can't pass all of
    them. Otherwise empty."""

    def run_options(self) -> "Options":
        """Return the options of a run, with the imported tools."""
        from ...tools.registry.functions import import_tools

        tools = import_tools(self.tools, "--tools")
        return {"store": self.store, "model": self.model, "tools": tools}

    def for_session(self, row: "SessionRow") -> "FollowUp":
        """Return the options for a session, which may need objects that are not installed."""
        # Commands that only list or stop sessions do not need these modules, which load slowly.
        from ...tools.registry.functions import import_tools
        from ...tools.registry.registry import Registry
        from ..session.checkpoints import stored_conversation

        places = json.loads(row.tools)
        passed = {tool.name for tool in import_tools(self.tools, "--tools")}
        tools, needed = [*self.tools], dict[str, list[str]]()
        is_complete = True
        for kind, name, is_installed in Registry().list_named_objects(stored_conversation(row, "")):
            if is_installed:
                continue
            needed.setdefault(kind, []).append(name)
            if kind == "tools" and name in places and name not in passed:
                tools.append(places[name])
            elif kind != "tools" or name not in passed:
                is_complete = False
        return replace(self, tools=tools) if is_complete else replace(self, in_python=needed)

    def command(
        self,
        verb: str,
        session: str,
        *,
        options: Sequence[str] = (),
        arguments: Sequence[str] = (),
    ) -> str:
        """Return the shell command that runs a subcommand of `duologue` on a session."""
        words = ["duologue", *verb.split()]
        if self.store is not None:
            words += ["--store", show_address(self.store)]
        if verb in _RUNS:
            words += [] if self.model is None else ["--model", self.model]
            words += [word for tool in self.tools for word in ("--tools", tool)]
        words += options
        # An id that begins with a dash would be read as an option.
        words += ["--", session] if session.startswith("-") else [session]
        words += arguments
        return " ".join(shlex.quote(clean(word)) for word in words)

    def call(self, method: str, session: str, *arguments: str) -> str:
        """Return the Python program that calls a method of a session with all its objects."""
        handle = [repr(session)]
        if self.store is not None:
            handle.append(f"store={show_address(self.store)!r}")
        given = [*arguments] if self.model is None else [*arguments, f"model={self.model!r}"]
        for kind, names in self.in_python.items():
            # Some objects have no variable with their name.
            values = [name if name.isidentifier() else "…" for name in names]
            pairs = zip(names, values, strict=True)
            written = ", ".join(f"{name!r}: {value}" for name, value in pairs)
            given.append(
                f"tools=[{', '.join(values)}]" if kind == "tools" else f"{kind}={{{written}}}"
            )
        call = f"Session({', '.join(handle)}).{method}({', '.join(given)})"
        return f"from duologue import Session; {call}"

    def hint(self, session: str) -> str:
        """Return the line that suggests to resume a session."""
        if self.in_python:
            return f"Continue in Python with: {self.call('resume', session)}"
        return f"Continue with: {self.command('resume', session)}"
