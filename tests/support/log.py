"""Messages of a log: tests build them, and read them by the names of kinds and fields.

Names of kinds and values of fields are those that a store contains, such as `"tool_calls"`. Fields
that a message's kind does not have are None.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar, get_args

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, InvalidToolCall, ToolMessage
from langchain_core.messages.tool import ToolCall

from duologue.graphs import Conversation
from duologue.graphs.common.content import Content
from duologue.graphs.log.messages import (
    KEY as KEY,
    PLACE as PLACE,
    make_message,
    make_tool_message,
    metadata,
    place_name as place_name,
    place_of as place_of,
    read_metadata as read_metadata,
)
from duologue.graphs.log.metadata import (
    NOBODY,
    AnyMetadata,
    Failure as Failure,
    Flaw as Flaw,
    MessageMetadata,
    Source as Source,
    Stage as Stage,
    ToolResult,
    UnheardResult,
    kind_name,
)
from duologue.graphs.log.state import append as append, log_of as log_of
from duologue.graphs.rules.log_counter import facts_of
from duologue.graphs.session.stored_session import StoredSession

M = TypeVar("M", bound=BaseMessage)

KINDS: Mapping[str, Collection[str]] = {
    kind_name(kind): kind.model_fields.keys() for kind in get_args(AnyMetadata)
}
"""The names of the fields of each kind of message."""

_FIELDS = set[str]().union(*KINDS.values())


def make_metadata(kind: str = "speech", **fields: Any) -> Any:  # noqa: ANN401  # of any kind
    """Return the metadata of a message of this kind."""
    return read_metadata({"kind": kind} | fields)


def make_line(
    number: int,
    content: Content,
    kind: str | MessageMetadata = "speech",
    *,
    id: str | None = None,  # noqa: A002  # as LangChain calls it
    answer: AIMessage | None = None,
    tool_calls: Sequence[ToolCall] = (),
    invalid_tool_calls: Sequence[InvalidToolCall] = (),
    **fields: Any,
) -> AnyMessage:
    """Return a message of this kind at this place of a log."""
    about = make_metadata(kind, **fields) if isinstance(kind, str) else kind
    return make_message(
        number,
        content,
        about,
        id=id,
        answer=answer,
        tool_calls=tool_calls,
        invalid_tool_calls=invalid_tool_calls,
    )


def make_tool_line(
    number: int,
    text: str,
    *,
    speaker: str,
    call_id: str,
    id: str | None = None,  # noqa: A002  # as LangChain calls it
    final: bool = True,
    **more: Any,
) -> ToolMessage:
    """Return a tool's result at this place of a log; `more` are fields of its metadata."""
    kind, heard = (ToolResult, (speaker,)) if final else (UnheardResult, NOBODY)
    about = kind(speaker=speaker, audience=heard, **more)
    return make_tool_message(number, text, about, call_id, id=id)


class _Fields:
    def __init__(self, message: BaseMessage) -> None:
        self._about = metadata(message)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # by the field
        return getattr(self._about, name, None) if name in _FIELDS else getattr(self._about, name)

    def __eq__(self, other: object) -> bool:
        return self._about == (other._about if isinstance(other, _Fields) else other)

    __hash__ = None  # type: ignore[assignment]


def fields_of(message: BaseMessage) -> Any:  # noqa: ANN401  # a field may have any type
    """Return a message's metadata, with None for the fields of other kinds."""
    return _Fields(message)


def kind_of(message: BaseMessage) -> str:
    """Return the name of a message's kind."""
    return metadata(message).kind


def of_kind(log: Iterable[M], *kinds: str) -> list[M]:
    """Return the messages of these kinds, oldest first."""
    return [message for message in log if kind_of(message) in kinds]


def check_facts(conversation: Conversation, state: Mapping[str, Any]) -> None:
    """Check that the facts in a graph's state are those that its whole log contains."""
    facts, counted = state["position"].get("facts", {}), facts_of(conversation, log_of(state))
    stored = type(counted).model_validate(facts).model_dump(include=counted.model_fields_set)
    assert stored == counted.model_dump(include=counted.model_fields_set)


def rejections(result: StoredSession) -> list[str]:
    """Return the problems of the replies and verdicts that were rejected, oldest first."""
    rejected = map(fields_of, result.messages)
    return [
        one.problem
        for one in rejected
        if one.kind == "draft" or (one.kind == "reflection" and one.verdict is None and one.problem)
    ]


def without_ids(messages: Sequence[M]) -> list[M]:
    """Return messages without their ids, which differ from run to run."""
    return [message.model_copy(update={"id": None}) for message in messages]
