"""The tools that speakers may call, by name."""

from collections.abc import Iterable
from difflib import get_close_matches

from langchain_core.tools import BaseTool

from duologue.graphs.errors import SpecError
from duologue.graphs.spec import Conversation, Speaker, listing


class Tools:
    """LangChain tools by their names.

    Args:
        tools: The tools.

    Raises:
        SpecError: Two tools share a name.
    """

    def __init__(self, tools: Iterable[BaseTool] = ()) -> None:
        self._tools: dict[str, BaseTool] = {}
        for tool in tools:
            if tool.name in self._tools:
                raise SpecError(f"tools: two tools are called {tool.name!r}")
            self._tools[tool.name] = tool

    def get(self, name: str) -> BaseTool | None:
        """Give the tool of this name, or None."""
        return self._tools.get(name)

    def of(self, speaker: Speaker) -> list[BaseTool]:
        """Give the tools that a speaker may call, in the spec's order."""
        return [self._tools[name] for name in speaker.tools]

    def check(self, conversation: Conversation) -> None:
        """Make sure that every tool that a conversation names is here.

        Raises:
            SpecError: One is not; names the speaker, the tool and the near ones.
        """
        for number, speaker in enumerate(conversation.speakers):
            for name in speaker.tools:
                if name not in self._tools:
                    near = get_close_matches(name, self._tools, n=3)
                    hint = f"did you mean {listing(near)}?" if near else "register it"
                    raise SpecError(f"speakers.{number}.tools: there is no tool {name!r}; {hint}")
