"""The activity of a run: the models and tools that have not answered yet, and its progress."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler

from ..log.metadata import Reflection, SpeakerChoice, SpecifiedTask, Summary, kind_name

_PURPOSES: Final[Mapping[str, str]] = {
    kind_name(SpecifiedTask): "the task",
    kind_name(Reflection): "the judge",
    kind_name(SpeakerChoice): "the moderator",
    kind_name(Summary): "a summary",
}
"""The name of a model call in the progress line, if the call is not made for a speaker. The key is
the kind of the message that the call writes.
"""


TERMINAL: Final = threading.Lock()
"""The lock on the terminal's progress line. Only the run that holds the lock draws the line."""


class AtWork(BaseCallbackHandler):
    """A LangChain callback handler that records which calls are running."""

    # Called in the event loop, at the moment of each callback.
    run_inline = True

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.running: dict[UUID, tuple[str, float]] = {}
        """The description and start time of each running call, by its run id, newest last."""
        self.state: Mapping[str, Any] | None = None
        """The state of the graph. None before the first node starts."""

    def on_chain_start(self, serialized: object, inputs: object, **kwargs: object) -> None:
        """Store the state that a node receives."""
        if isinstance(inputs, Mapping) and "position" in inputs:
            self.state = inputs

    def on_chain_end(self, outputs: object, **kwargs: object) -> None:
        """Store the position that a node returns."""
        if isinstance(outputs, Mapping) and outputs.get("position") and self.state is not None:
            self.state = {**self.state, "position": outputs["position"]}

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[Any]],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,  # as in the base class
    ) -> None:
        """Record that a model is called."""
        about = metadata or {}
        purpose, speaker = about.get("purpose"), about.get("speaker")
        who = speaker or _PURPOSES.get(str(purpose), "a model")
        own = " on its task" if speaker and purpose == kind_name(Reflection) else ""
        self._begin(run_id, f"Waiting for {who}{own}")

    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        **kwargs: Any,
    ) -> None:
        """Record that a tool is called."""
        self._begin(run_id, f"Waiting for the tool {serialized.get('name', '')}")

    def _begin(self, run: UUID, what: str) -> None:
        self.running[run] = (what, self.clock())

    def _end(self, *given: object, run_id: UUID, **kwargs: object) -> None:
        self.running.pop(run_id, None)

    on_llm_end = on_llm_error = on_tool_end = on_tool_error = _end
