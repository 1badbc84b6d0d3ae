"""The public names, and where each is."""

from .batch.exports.export import aexport_batch as aexport_batch, export_batch as export_batch
from .batch.exports.manifest import ExportManifest as ExportManifest
from .batch.exports.rows import abatch_rows as abatch_rows, batch_rows as batch_rows
from .batch.listing import (
    adelete_batch as adelete_batch,
    aget_batch as aget_batch,
    alist_batches as alist_batches,
    delete_batch as delete_batch,
    get_batch as get_batch,
    list_batches as list_batches,
)
from .batch.load import load_batch as load_batch
from .batch.report.contents import BatchReport as BatchReport
from .batch.report.report import areport_batch as areport_batch, report_batch as report_batch
from .batch.run import arun_batch as arun_batch, run_batch as run_batch
from .batch.spec import Batch as Batch, BatchLimits as BatchLimits, RateLimit as RateLimit
from .batch.status import BatchStatus as BatchStatus
from .build import build_graph as build_graph
from .common.errors import (
    AnswerError as AnswerError,
    BatchError as BatchError,
    ContextTooLongError as ContextTooLongError,
    DuologueError as DuologueError,
    ModelError as ModelError,
    ModelUnavailableError as ModelUnavailableError,
    SessionError as SessionError,
    SpecError as SpecError,
    StoreError as StoreError,
    UnreadableAnswerError as UnreadableAnswerError,
)
from .kinds.blogger import BloggerForm as BloggerForm, blogger as blogger
from .kinds.chat import ChatForm as ChatForm, chat as chat
from .kinds.coder import CoderForm as CoderForm, coder as coder
from .kinds.group_solve import GroupSolveForm as GroupSolveForm, group_solve as group_solve
from .kinds.load import load_conversation as load_conversation
from .kinds.role_play import RolePlayForm as RolePlayForm, role_play as role_play
from .kinds.user_proxy import UserProxyForm as UserProxyForm, user_proxy as user_proxy
from .log.viewpoint import viewpoint as viewpoint
from .pictures.draw import draw as draw
from .rules.end_chat import decide as decide
from .rules.ends.cause import Cause as Cause, CauseKind as CauseKind
from .rules.outcome import Outcome as Outcome
from .rules.position import Position as Position
from .run.ask import aask as aask, aremember as aremember, ask as ask, remember as remember
from .run.converse import (
    aanswer_session as aanswer_session,
    aconverse as aconverse,
    answer_session as answer_session,
    aresume as aresume,
    astream as astream,
    converse as converse,
    resume as resume,
    stream as stream,
)
from .run.events import Event as Event
from .sessions.fork import afork as afork, fork as fork
from .sessions.listing import (
    adelete_session as adelete_session,
    alist_sessions as alist_sessions,
    delete_session as delete_session,
    list_sessions as list_sessions,
)
from .sessions.prompting import aget_prompt as aget_prompt, get_prompt as get_prompt
from .sessions.replays.replay import areplay as areplay, replay as replay
from .sessions.result import Result as Result
from .sessions.say import asay as asay, say as say
from .sessions.session import aget_session as aget_session, get_session as get_session
from .sessions.stop import astop_session as astop_session, stop_session as stop_session
from .sessions.transfer import (
    acopy_session as acopy_session,
    adump_session as adump_session,
    aexport_session as aexport_session,
    aload_session as aload_session,
    areset_session as areset_session,
    copy_session as copy_session,
    dump_session as dump_session,
    export_session as export_session,
    load_session as load_session,
    reset_session as reset_session,
)
from .speakers.approval import InterruptOn as InterruptOn
from .speakers.context import (
    KeepAll as KeepAll,
    LastMessages as LastMessages,
    RunningSummary as RunningSummary,
    TokenBudget as TokenBudget,
)
from .speakers.few_shot import Example as Example
from .speakers.formats import (
    BlockFormat as BlockFormat,
    CodeFormat as CodeFormat,
    LabelledFormat as LabelledFormat,
    ParsedBlock as ParsedBlock,
    ParseStatus as ParseStatus,
    SchemaFormat as SchemaFormat,
)
from .speakers.parts import (
    ModelSettings as ModelSettings,
    PrivateOpening as PrivateOpening,
    SmallModelPrompt as SmallModelPrompt,
)
from .speakers.replies import (
    AgentReply as AgentReply,
    CodeReply as CodeReply,
    FunctionReply as FunctionReply,
    HumanInputMode as HumanInputMode,
    HumanReply as HumanReply,
    ModelReply as ModelReply,
    TextReply as TextReply,
)
from .speakers.speaker import Speaker as Speaker
from .spec.conversation import Conversation as Conversation
from .spec.end_chat import EndChat as EndChat, EndChatMode as EndChatMode, Guards as Guards
from .spec.ends import (
    AllOf as AllOf,
    AnyOf as AnyOf,
    DoneToken as DoneToken,
    MaxCalls as MaxCalls,
    MaxCost as MaxCost,
    MaxMessages as MaxMessages,
    MaxSeconds as MaxSeconds,
    MaxTokens as MaxTokens,
    NoCodeBlock as NoCodeBlock,
    Predicate as Predicate,
    Reason as Reason,
    StopRequested as StopRequested,
    ToolCalled as ToolCalled,
)
from .spec.fields import Opening as Opening, TaskSpecification as TaskSpecification
from .spec.judges import (
    Finding as Finding,
    Handoff as Handoff,
    Judge as Judge,
    Moderator as Moderator,
    RoundRobin as RoundRobin,
    SeparateJudge as SeparateJudge,
    TurnFunction as TurnFunction,
    Verdict as Verdict,
)
from .spec.questions import (
    Answer as Answer,
    ApprovalQuestion as ApprovalQuestion,
    MessageQuestion as MessageQuestion,
    Question as Question,
    ToolQuestion as ToolQuestion,
)
from .spec.sandbox import Sandbox as Sandbox
from .spec.usage import Price as Price, Usage as Usage
from .store.rows import SessionRow as SessionRow
