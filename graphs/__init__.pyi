"""Public names of `duologue.graphs`, with the modules that define them."""

from .batch.run import (
    BatchRun as BatchRun,
    arun_batch as arun_batch,
    run_batch as run_batch,
)
from .batch.spec import (
    Batch as Batch,
    BatchLimits as BatchLimits,
    RateLimit as RateLimit,
)
from .batch.status import (
    alist_batches as alist_batches,
    list_batches as list_batches,
)
from .build import build_graph as build_graph
from .common.errors import (
    AgentError as AgentError,
    AnswerError as AnswerError,
    BatchError as BatchError,
    ContextTooLongError as ContextTooLongError,
    DuologueError as DuologueError,
    InconclusiveResult as InconclusiveResult,
    ModelError as ModelError,
    ModelUnavailableError as ModelUnavailableError,
    SessionError as SessionError,
    SpecError as SpecError,
    StoreError as StoreError,
    ToolServerError as ToolServerError,
    UnreadableAnswerError as UnreadableAnswerError,
)
from .conversation.conversation import Conversation as Conversation
from .conversation.fields import Opening as Opening, TaskSpecification as TaskSpecification
from .conversation.judges import (
    Handoff as Handoff,
    Judge as Judge,
    Moderator as Moderator,
    SeparateJudge as SeparateJudge,
    TurnFunction as TurnFunction,
)
from .conversation.questions import (
    ApprovalQuestion as ApprovalQuestion,
    MessageQuestion as MessageQuestion,
    Question as Question,
    ToolQuestion as ToolQuestion,
)
from .conversation.sandbox import Sandbox as Sandbox
from .conversation.usage import Price as Price
from .ends.end_chat import (
    EndChat as EndChat,
    EndChatMode as EndChatMode,
    Guards as Guards,
    Reason as Reason,
)
from .ends.events import (
    DoneToken as DoneToken,
    NoCodeBlock as NoCodeBlock,
    Predicate as Predicate,
    StopRequested as StopRequested,
    ToolCalled as ToolCalled,
)
from .ends.limits import (
    MaxCalls as MaxCalls,
    MaxCost as MaxCost,
    MaxMessages as MaxMessages,
    MaxSeconds as MaxSeconds,
    MaxTokens as MaxTokens,
)
from .kinds.chat import chat as chat, user_proxy as user_proxy
from .kinds.coder import blogger as blogger, coder as coder
from .kinds.load import load_conversation as load_conversation
from .kinds.role_play import group_solve as group_solve, role_play as role_play
from .kinds.simulation import simulation as simulation
from .rules.outcome import Outcome as Outcome
from .scenarios.scenario import Scenario as Scenario
from .scenarios.simulate import asimulate as asimulate, simulate as simulate
from .serve.tools import as_tool as as_tool
from .session.ask import aask as aask, aremember as aremember, ask as ask, remember as remember
from .session.converse import (
    aconverse as aconverse,
    aload_session as aload_session,
    astream as astream,
    converse as converse,
    load_session as load_session,
    stream as stream,
)
from .session.listing import alist_sessions as alist_sessions, list_sessions as list_sessions
from .session.options import Hook as Hook
from .session.session import Result as Result, Session as Session
from .show.draw import draw as draw
from .speakers.call_settings import (
    InterruptOn as InterruptOn,
    LastMessages as LastMessages,
    ModelSettings as ModelSettings,
    PrivateOpening as PrivateOpening,
    RunningSummary as RunningSummary,
    SmallModelPrompt as SmallModelPrompt,
    TokenBudget as TokenBudget,
)
from .speakers.formats import (
    BlockFormat as BlockFormat,
    CodeFormat as CodeFormat,
    LabelledFormat as LabelledFormat,
    SchemaFormat as SchemaFormat,
)
from .speakers.replies import (
    AgentReply as AgentReply,
    CodeReply as CodeReply,
    FunctionReply as FunctionReply,
    HumanReply as HumanReply,
    ModelReply as ModelReply,
    TextReply as TextReply,
)
from .speakers.speaker import Speaker as Speaker
