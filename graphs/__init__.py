"""What a conversation is, each kind of it, and how one is run: the public API."""

from duologue.graphs.build import build_graph
from duologue.graphs.converse import aconverse, aresume, astream, converse, resume, stream
from duologue.graphs.end_chat import Position, Reason, decide
from duologue.graphs.errors import (
    DuologueError,
    ModelError,
    SessionError,
    SpecError,
    StoreError,
)
from duologue.graphs.events import Event
from duologue.graphs.fork import afork, fork
from duologue.graphs.load import load_conversation
from duologue.graphs.outcome import Outcome, Usage, Verdict
from duologue.graphs.result import Result
from duologue.graphs.role_play import RolePlay, role_play
from duologue.graphs.sessions import (
    adelete_session,
    aget_session,
    alist_sessions,
    astop_session,
    delete_session,
    get_session,
    list_sessions,
    stop_session,
)
from duologue.graphs.spec import (
    Brief,
    Conversation,
    DoneToken,
    EndChat,
    EndChatMode,
    Generation,
    Judge,
    Marks,
    Opening,
    Speaker,
    TaskSpecification,
)
from duologue.graphs.store import SessionRow
from duologue.graphs.viewpoint import viewpoint

__all__ = [
    "Brief",
    "Conversation",
    "DoneToken",
    "DuologueError",
    "EndChat",
    "EndChatMode",
    "Event",
    "Generation",
    "Judge",
    "Marks",
    "ModelError",
    "Opening",
    "Outcome",
    "Position",
    "Reason",
    "Result",
    "RolePlay",
    "SessionError",
    "SessionRow",
    "Speaker",
    "SpecError",
    "StoreError",
    "TaskSpecification",
    "Usage",
    "Verdict",
    "aconverse",
    "adelete_session",
    "afork",
    "aget_session",
    "alist_sessions",
    "aresume",
    "astop_session",
    "astream",
    "build_graph",
    "converse",
    "decide",
    "delete_session",
    "fork",
    "get_session",
    "list_sessions",
    "load_conversation",
    "resume",
    "role_play",
    "stop_session",
    "stream",
    "viewpoint",
]
