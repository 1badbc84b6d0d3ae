"""Fields of log messages, for tests that need not know the kind of each message."""

from typing import Any, get_args

from langchain_core.messages import BaseMessage

from duologue.graphs.log.messages import metadata
from duologue.graphs.log.metadata import AnyMetadata
from duologue.graphs.session.stored_session import StoredSession

_FIELDS = {name for kind in get_args(AnyMetadata) for name in kind.model_fields}


class _Fields:
    def __init__(self, message: BaseMessage) -> None:
        self._about = metadata(message)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # by the field
        return getattr(self._about, name, None) if name in _FIELDS else getattr(self._about, name)


def fields_of(message: BaseMessage) -> Any:  # noqa: ANN401  # a field may have any type
    """Return a message's metadata, with None for the fields of other kinds."""
    return _Fields(message)


def rejections(result: StoredSession) -> list[str]:
    """Return the problems of the replies and verdicts that were rejected, oldest first."""
    rejected = (fields_of(one) for one in result.messages)
    return [
        one.problem
        for one in rejected
        if one.kind == "draft" or (one.kind == "reflection" and one.verdict is None and one.problem)
    ]
