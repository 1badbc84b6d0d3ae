"""The turns of a chat: the runs that answer requests, and their answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ..common.errors import SpecError
from ..conversation.conversation import Conversation
from ..conversation.questions import MessageQuestion, Question
from ..conversation.usage import Usage
from ..session.options import GivenAnswer, Options
from ..session.stored_session import StoredSession
from ..speakers.reply_parts import StopCause
from .chat_requests import HistoryMessage
from .forms import describe_question
from .openai_format import RefusedError
from .served_models import Output, check_last, output_of
from .tools import ServedTool

SESSION: Final = "X-Duologue-Session"
"""The header that names a session, in requests and in responses."""

NEW_SESSION: Final = "new"
"""The value of the header that starts a session."""


LARGE: Final = 50_000
"""The weight from which the work for messages could delay other clients for more than 20 ms.

The weight of a text is its length in characters. Each message also weighs `MESSAGE_WEIGHT`, because
a message costs about as much time as 1,000 characters.
"""

MESSAGE_WEIGHT: Final = 1000


@dataclass
class StartedSession:
    """A session that a client has started."""

    id: str
    tool: ServedTool
    questions: Sequence[Question] = ()
    """The questions for which the session waits since the latest answer."""
    usage: Usage = field(default_factory=Usage)
    """The usage that the earlier answers have reported."""
    weight: int = 0
    """The weight of its messages, in characters: see `LARGE`."""


class ChatTurn(NamedTuple):
    """One run of a conversation, which answers one request."""

    tool: ServedTool
    source: Conversation | None
    """The conversation to start. None if a session continues."""
    session: str
    options: Options
    reply: GivenAnswer | None = None
    """The answer to the question of the session."""
    started: StartedSession | None = None
    """The client's session. None if nothing is stored."""
    weight: int = 0
    """The weight of the messages that it reads, in characters: see `LARGE`."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the response."""
        return {} if self.started is None else {SESSION: self.started.id}


def continue_session(
    started: StartedSession, messages: Sequence[HistoryMessage], options: Options
) -> ChatTurn:
    """Return the run that continues a session with a message, or without any.

    Raises:
        RefusedError: The session does not wait for a message.
        SpecError: There is more than one message, it is not the user's, or it contains files
            although the question is not about a message.
        AnswerError: The text can't be read as the answer to the session's question.
    """
    turn = ChatTurn(started.tool, None, started.id, options, started=started)
    if not messages:
        return turn
    # An empty answer can mean, for example, that calls may run. The question checks the text.
    check_last(messages, may_be_blank=bool(started.questions))
    if len(messages) > 1:
        raise SpecError(
            "messages: a session keeps the earlier messages; send only the new message of the user"
        )
    (message,) = messages
    if started.questions:
        question = started.questions[0]
        if not message.has_files:
            return turn._replace(reply=GivenAnswer(question.read(message.text), question.id))
        if not isinstance(question, MessageQuestion):
            raise SpecError("messages: the answer to this question must be text; leave files out")
        return turn._replace(reply=GivenAnswer(message.content, question.id))
    if not started.tool.conversation.people:
        raise RefusedError(
            409,
            f"Session {started.id!r} takes no further message, because no person takes part; send "
            f"{SESSION}: {NEW_SESSION} to start another one, or an empty list of messages to "
            "continue after an error.",
            "session_error",
        )
    return turn._replace(options=Options(**{**options, "message": message.content}))


class Answer(NamedTuple):
    """The answer to a request."""

    text: str
    output: Output | None
    """The output of the conversation. None if the text is not its output."""
    usage: Usage

    @property
    def ending(self) -> str:
        """The reason why the answer ends, as OpenAI's ``finish_reason``."""
        stop = None if self.output is None else self.output.stop
        return "stop" if stop is None else _ENDINGS.get(stop.cause, "stop")


_ENDINGS: Final = {
    StopCause.LENGTH: "length",
    StopCause.THOUGHT: "length",
    StopCause.FILTER: "content_filter",
    StopCause.PROMPT: "content_filter",
}
"""OpenAI's finish reason for each cause that has one."""


def answer_of(session: StoredSession, usage: Usage, *, is_session: bool) -> Answer:
    """Return the answer to a request after its run.

    Raises:
        RefusedError: A person must answer another question than the next message, and no session is
            stored in which the client can answer it.
    """
    question = session.pending[0] if session.pending else None
    if question is not None and not _is_next_message(question):
        if not is_session:
            raise RefusedError(
                409,
                f"A person must answer a question: {question.summary()} Send {SESSION}: "
                f"{NEW_SESSION} to start a session, in which the next message is the answer.",
                "answer_required",
            )
        sample = "" if question.sample() == "TEXT" else f"\n\nFor example: {question.sample()}"
        return Answer(f"{describe_question(question)}{sample}", None, usage)
    output = output_of(session)
    if output.text:
        return Answer(output.text, output, usage)
    text = str(session.outcome) if question is None else describe_question(question)
    return Answer(text, None, usage)


def _is_next_message(question: Question) -> bool:
    """Return whether a question only asks for the person's next message."""
    return isinstance(question, MessageQuestion) and not question.calls
