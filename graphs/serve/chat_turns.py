"""The turns of a chat: the conversations that requests start or continue, and their answers.

If one person takes part, the user's newest message is that person's first message, and the speakers
remember the messages before it. If no person takes part, the newest message is the task, which also
contains the messages before it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from ..common.content import Content
from ..common.errors import SpecError
from ..conversation.conversation import Conversation
from ..conversation.questions import MessageQuestion
from ..conversation.usage import Usage
from ..log.messages import metadata, place_of
from ..log.metadata import SpeakerReply
from ..rules.outcome import find_output
from ..session.options import GivenAnswer, Options
from ..session.stored_session import StoredSession
from ..speakers.replies import HumanInputMode, HumanReply, ModelReply, TextReply
from ..speakers.reply_parts import Stop, StopCause
from ..speakers.speaker import Speaker
from .openai_format import HistoryMessage, RefusedError
from .tools import StartedSession, describe_question

_TASK_AFTER_OTHERS: Final = "Earlier messages:\n\n{before}\n\nThe task now:\n\n{task}"
"""The task of a conversation without people if messages precede it."""

_SIDES: Final = {"user": "User", "assistant": "Assistant"}


class Output(NamedTuple):
    """The output of a conversation, as a client receives it."""

    text: str
    """The text, or JSON if the speaker answers by a schema."""
    place: str | None
    """The place of its message in the log. None if there is no output."""
    stop: Stop | None = None
    """Why the model stopped before the message was complete. None if it is complete."""


def start_conversation(
    served: Conversation, messages: Sequence[HistoryMessage]
) -> tuple[Conversation, Content | None]:
    """Return the conversation that answers the last of the messages, which is the user's.

    The person's first message follows, or None if the conversation contains it.

    Raises:
        SpecError: There is no message of the user, the last message is the assistant's, or there
            are files although no person takes part.
    """
    check_last(messages)
    *before, last = messages
    if not served.people:
        if any(one.has_files for one in messages):
            raise SpecError(
                "messages: images and files are not accepted by this model, whose task is text; "
                "send text"
            )
        return served.model_copy(update={"task": _task(before, last.text)}), None
    (person,) = served.people
    # Fixed messages of speakers contain only text.
    first = () if last.has_files else (TextReply(kind="text", text=last.text, once=True),)
    speakers = tuple(
        one.model_copy(update={"replies": (*first, *_later_replies(one))})
        if one.name == person
        else _with_memory(served, one, before, person)
        for one in served.speakers
    )
    first_message = last.content if last.has_files else None
    return served.model_copy(update={"speakers": speakers}), first_message


def check_last(messages: Sequence[HistoryMessage], *, may_be_blank: bool = False) -> None:
    """Check that the last message is the user's.

    Raises:
        SpecError: It is not, or it is blank although it must have a text.
    """
    last = messages[-1] if messages else None
    if last is None or last.role != "user" or not (last.text.strip() or may_be_blank):
        raise SpecError(
            "messages: the last message must be the user's, and must not be empty; add a message "
            "of the user"
        )


def _task(before: Sequence[HistoryMessage], task: str) -> str:
    if not before:
        return task
    lines = "\n\n".join(f"{_SIDES[one.role]}: {one.text}" for one in before)
    return _TASK_AFTER_OTHERS.format(before=lines, task=task)


def _later_replies(person: Speaker) -> tuple[object, ...]:
    return tuple(one for one in person.replies if not (isinstance(one, TextReply) and one.once))


def _with_memory(
    served: Conversation, speaker: Speaker, before: Sequence[HistoryMessage], person: str
) -> Speaker:
    """Return a speaker that remembers earlier messages.

    The assistant's messages are its own if it writes the output, and else messages of the speaker
    that does.
    """
    others = [one for one in served.speakers if one.name != person]
    writer = next((one.name for one in others if one.writes_output), others[0].name)
    remembered: list[AnyMessage] = []
    for message in before:
        if message.role == "user":
            remembered.append(HumanMessage(message.content, name=person))
        elif speaker.name == writer:
            remembered.append(AIMessage(message.text))
        else:
            remembered.append(HumanMessage(message.text, name=writer))
    return speaker.model_copy(update={"memory": (*speaker.memory, *remembered)})


def is_streamed_live(served: Conversation) -> bool:
    """Return whether each reply of a model is the output, so that it is streamed as it is written.

    This is the case in a chat of a person and a model without tools and without a format.
    """
    if len(served.people) != 1 or not served.is_pair:
        return False
    (person,) = (one for one in served.speakers if one.human is not None)
    (other,) = (one for one in served.speakers if one is not person)
    is_asked = all(
        isinstance(one, HumanReply) and one.human_input_mode is HumanInputMode.ALWAYS
        for one in _later_replies(person)
    )
    is_plain = all(isinstance(one, ModelReply) for one in other.replies)
    return is_asked and is_plain and not other.tools and other.format is None


def output_of(session: StoredSession) -> Output:
    """Return the output of a session. The text is empty if there is none."""
    found = find_output(session.conversation, session.messages)
    if found is None:
        return Output("", None)
    about, value = metadata(found), session.output
    text = session.text if value is None else value
    return Output(
        text if isinstance(text, str) else json.dumps(text, ensure_ascii=False),
        place_of(found),
        about.stop if isinstance(about, SpeakerReply) else None,
    )


def usage_since(before: Usage, now: Usage) -> Usage:
    """Return the usage of the calls that were made after an earlier count."""
    counts = now.model_dump(exclude={"cost"})
    return Usage(**{name: count - getattr(before, name) for name, count in counts.items()})


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
class ChatSession(StartedSession):
    """A session that a client has started, or a conversation that is not stored."""

    usage: Usage = field(default_factory=Usage)
    """The usage that the earlier answers have reported."""
    weight: int = 0
    """The weight of its messages, in characters: see `LARGE`."""


class ChatTurn(NamedTuple):
    """One run of a conversation, which answers one request."""

    session: ChatSession
    source: Conversation | None
    """The conversation to start. None if a session continues."""
    options: Options
    reply: GivenAnswer | None = None
    """The answer to the question of the session."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the response."""
        return {SESSION: self.session.id} if self.session.is_stored else {}


def continue_session(
    session: ChatSession, messages: Sequence[HistoryMessage], options: Options
) -> ChatTurn:
    """Return the run that continues a session with a message, or without any.

    Raises:
        RefusedError: The session does not wait for a message.
        SpecError: There is more than one message, it is not the user's, or it contains files
            although the question is not about a message.
        AnswerError: The text can't be read as the answer to the session's question.
    """
    turn = ChatTurn(session, None, options)
    if not messages:
        return turn
    # An empty answer can mean, for example, that calls may run. The question checks the text.
    check_last(messages, may_be_blank=bool(session.questions))
    if len(messages) > 1:
        raise SpecError(
            "messages: a session keeps the earlier messages; send only the new message of the user"
        )
    (message,) = messages
    if session.questions:
        question = session.questions[0]
        if not message.has_files:
            return turn._replace(reply=GivenAnswer(question.read(message.text), question.id))
        if not isinstance(question, MessageQuestion):
            raise SpecError("messages: the answer to this question must be text; leave files out")
        return turn._replace(reply=GivenAnswer(message.content, question.id))
    if not session.tool.conversation.people:
        raise RefusedError(
            409,
            f"Session {session.id!r} takes no further message, because no person takes part; send "
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
    asks_for_more = isinstance(question, MessageQuestion) and not question.calls
    if question is not None and not asks_for_more:
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
