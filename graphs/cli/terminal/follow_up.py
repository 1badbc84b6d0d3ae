"""Commands for a session, as a person can copy them."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from ...common.addresses import redacted
from ...common.sanitize import clean


@dataclass(frozen=True)
class FollowUp:
    """The options that every further command for a session needs, since no session holds them."""

    store: str | None = None
    """Where it is kept, if that was said."""
    model: str | None = None
    """What speaks where it names no model, if that was said."""

    def command(
        self,
        verb: str,
        session: str,
        *,
        options: Sequence[str] = (),
        arguments: Sequence[str] = (),
    ) -> str:
        """Write the command that does something with a session."""
        words = ["duologue", *verb.split()]
        if self.store is not None:
            words += ["--store", redacted(self.store)]
        if self.model is not None and verb in ("resume", "answer"):
            words += ["--model", self.model]
        words += options
        # An id may begin with a dash, which would make it an option.
        words += ["--", session] if session.startswith("-") else [session]
        words += arguments
        return " ".join(shlex.quote(clean(word)) for word in words)

    def hint(self, session: str) -> str:
        """Say how an unfinished session goes on."""
        return f"Go on with: {self.command('resume', session)}"
