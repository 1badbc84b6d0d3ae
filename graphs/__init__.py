"""What a conversation is, each kind of it, and how one is run: the public API."""

from duologue.graphs.approval import InterruptOn
from duologue.graphs.blogger import Blogger, blogger
from duologue.graphs.build import build_graph
from duologue.graphs.chat import Chat, chat
from duologue.graphs.coder import Coder, coder
from duologue.graphs.context import KeepAll, LastMessages, RunningSummary, TokenBudget
from duologue.graphs.converse import (
    aconverse,
    arespond,
    aresume,
    astream,
    converse,
    respond,
    resume,
    stream,
)
from duologue.graphs.end_chat import decide
from duologue.graphs.ends import (
    AllOf,
    AnyOf,
    DoneToken,
    EndChat,
    EndChatMode,
    EndingTool,
    Guards,
    MaxCalls,
    MaxCost,
    MaxMessages,
    MaxSeconds,
    MaxTokens,
    NoCode,
    Predicate,
    StopRequested,
)
from duologue.graphs.errors import (
    AnswerError,
    ContextTooLongError,
    DuologueError,
    ModelError,
    SessionError,
    SpecError,
    StoreError,
)
from duologue.graphs.events import Event
from duologue.graphs.few_shot import Example
from duologue.graphs.fork import afork, fork
from duologue.graphs.formats import Block, Blocks, Code, Marks, Schema, Status
from duologue.graphs.group_solve import GroupSolve, group_solve
from duologue.graphs.holding import Reason
from duologue.graphs.judging import (
    ByFunction,
    Finding,
    Judge,
    Moderator,
    RoundRobin,
    SeparateJudge,
    Verdict,
)
from duologue.graphs.load import load_conversation
from duologue.graphs.memory import (
    acopy_session,
    adump_session,
    aexport_session,
    aload_session,
    areset_session,
    copy_session,
    dump_session,
    export_session,
    load_session,
    reset_session,
)
from duologue.graphs.outcome import Outcome
from duologue.graphs.position import Position
from duologue.graphs.questions import (
    Answer,
    ApprovalQuestion,
    MessageQuestion,
    Question,
    ToolQuestion,
)
from duologue.graphs.replay import areplay, replay
from duologue.graphs.replies import (
    CodeReply,
    FunctionReply,
    HumanInputMode,
    HumanReply,
    ModelReply,
    TextReply,
)
from duologue.graphs.result import Result
from duologue.graphs.role_play import RolePlay, role_play
from duologue.graphs.sandbox import Sandbox
from duologue.graphs.saying import asay, say
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
from duologue.graphs.speaker import Brief, Generation, PrivateOpening, Speaker
from duologue.graphs.spec import Conversation, Opening, TaskSpecification
from duologue.graphs.store import SessionRow
from duologue.graphs.usage import Price, Usage
from duologue.graphs.user_proxy import UserProxy, user_proxy
from duologue.graphs.viewpoint import viewpoint
from duologue.graphs.why import Cause, CauseKind

__all__ = [
    "AllOf",
    "Answer",
    "AnswerError",
    "AnyOf",
    "ApprovalQuestion",
    "Block",
    "Blocks",
    "Blogger",
    "Brief",
    "ByFunction",
    "Cause",
    "CauseKind",
    "Chat",
    "Code",
    "CodeReply",
    "Coder",
    "ContextTooLongError",
    "Conversation",
    "DoneToken",
    "DuologueError",
    "EndChat",
    "EndChatMode",
    "EndingTool",
    "Event",
    "Example",
    "Finding",
    "FunctionReply",
    "Generation",
    "GroupSolve",
    "Guards",
    "HumanInputMode",
    "HumanReply",
    "InterruptOn",
    "Judge",
    "KeepAll",
    "LastMessages",
    "Marks",
    "MaxCalls",
    "MaxCost",
    "MaxMessages",
    "MaxSeconds",
    "MaxTokens",
    "MessageQuestion",
    "ModelError",
    "ModelReply",
    "Moderator",
    "NoCode",
    "Opening",
    "Outcome",
    "Position",
    "Predicate",
    "Price",
    "PrivateOpening",
    "Question",
    "Reason",
    "Result",
    "RolePlay",
    "RoundRobin",
    "RunningSummary",
    "Sandbox",
    "Schema",
    "SeparateJudge",
    "SessionError",
    "SessionRow",
    "Speaker",
    "SpecError",
    "Status",
    "StopRequested",
    "StoreError",
    "TaskSpecification",
    "TextReply",
    "TokenBudget",
    "ToolQuestion",
    "Usage",
    "UserProxy",
    "Verdict",
    "aconverse",
    "acopy_session",
    "adelete_session",
    "adump_session",
    "aexport_session",
    "afork",
    "aget_session",
    "alist_sessions",
    "aload_session",
    "areplay",
    "areset_session",
    "arespond",
    "aresume",
    "asay",
    "astop_session",
    "astream",
    "blogger",
    "build_graph",
    "chat",
    "coder",
    "converse",
    "copy_session",
    "decide",
    "delete_session",
    "dump_session",
    "export_session",
    "fork",
    "get_session",
    "group_solve",
    "list_sessions",
    "load_conversation",
    "load_session",
    "replay",
    "reset_session",
    "respond",
    "resume",
    "role_play",
    "say",
    "stop_session",
    "stream",
    "user_proxy",
    "viewpoint",
]
