"""Done tokens in the log: who says which, and what others hear of it. Pure functions."""

from collections.abc import Iterator, Sequence

from langchain_core.messages import BaseMessage

from ..ends.done_token import DoneToken
from ..ends.end import leaves, lone
from ..speakers.formats import LabelledFormat, plain
from ..speakers.replies import DATA
from ..spec.conversation import Conversation
from ..text.done_words import may_say, says, settled, without
from ..text.fences import prose_places
from .formats.code_blocks import holds_code, languages_run
from .formats.marks import begins, length_of
from .messages import metadata
from .metadata import MessageMetadata, is_open_speech, is_public_speech


def done_tokens(conversation: Conversation, speaker: str | None, text: str) -> list[str]:
    """Give the done tokens that a message says, of those that its speaker may say."""
    mine = _tokens_of(conversation, speaker)
    return [
        end.token
        for end in mine
        if may_say(end.token, text)
        and says(end.token, _shown(conversation, speaker, end, text), end.counts, speaker)
    ]


def unanswered_token(
    conversation: Conversation, speaker: str, text: str, log: Sequence[BaseMessage]
) -> str | None:
    """Return the done token with which a message ends a conversation that nobody has joined yet.

    A token that is joined to another end by ``&`` counts when that end says so, one that has to be
    answered waits for the answer, and one beside code for another speaker until that has run it.

    Args:
        conversation: The spec.
        speaker: Who says the message.
        text: The message.
        log: What was said before it, or up to it.
    """
    if not conversation.end_chat.waits_for_another:
        return None
    enough = {
        end.token
        for end in lone(conversation.end_chat.when)
        if isinstance(end, DoneToken) and not end.answered and end.by in (None, speaker)
    }
    said = (token for token in done_tokens(conversation, speaker, text) if token in enough)
    token = next(said, None)
    if token is None or _is_run_by_another(conversation, speaker, text):
        return None
    return None if _has_heard_another(log, speaker) else token


def _is_run_by_another(conversation: Conversation, speaker: str, text: str) -> bool:
    others = (one for one in conversation.speakers if one.runs_code and one.name != speaker)
    return any(holds_code(text, languages_run(conversation, one)) for one in others)


def _has_heard_another(log: Sequence[BaseMessage], speaker: str) -> bool:
    """Return whether another speaker has said something; opening messages count."""
    read = map(metadata, log)
    return any(is_open_speech(about) and about.speaker != speaker for about in read)


def heard_text(conversation: Conversation, message: BaseMessage, about: MessageMetadata) -> str:
    """Give what others hear of a message: all but the done tokens that it says."""
    text: str = message.text
    if is_public_speech(about) and about.source not in DATA:
        return _without(conversation, about.speaker, text)
    return text


class HeardText:
    """What others hear of a message that comes in pieces: what may be a done token is held back.

    Args:
        conversation: The spec. None: no done token counts where it is said.
        speaker: Who says it.
    """

    def __init__(self, conversation: Conversation | None, speaker: str) -> None:
        self._conversation, self._speaker = conversation, speaker
        self._ends = [] if conversation is None else [*_tokens_of(conversation, speaker)]
        self._text = ""
        self._told = 0

    def take(self, piece: str, *, is_over: bool) -> str:
        """Take the next piece; give what is sure to be heard now."""
        self._text += piece
        before, conversation = self._told, self._conversation
        if conversation is None:
            self._told = len(self._text)
            return piece
        if is_over:
            return _without(conversation, self._speaker, self._text)[before:]
        who = conversation, self._speaker
        known = (
            settled(end.token, _shown(*who, end, self._text), end.counts, before, self._speaker)
            for end in self._ends
        )
        self._told = min(known, default=len(self._text))
        return self._text[before : self._told]


def _without(conversation: Conversation, speaker: str | None, text: str) -> str:
    for end in _tokens_of(conversation, speaker):
        if may_say(end.token, text):
            shown = _shown(conversation, speaker, end, text)
            text = without(end.token, text, end.counts, speaker, shown)
    return text


def _shown(conversation: Conversation, speaker: str | None, end: DoneToken, text: str) -> str:
    """Return a message with white space for its first mark, so that all else keeps its place.

    "Instruction: ###STOP###" has nothing else to say. The same for the other marks and what comes
    after them, unless it has the token itself.
    """
    marks = None if speaker is None or end.counts != "last" else conversation.speaker(speaker).marks
    if marks is None or not may_say(end.token, text):
        return text
    places = [*prose_places(text)]
    first = next((one for one in places if begins(one[1], marks.lines[0])), None)
    if first is None:
        return text
    start, behind = first[0], first[0] + length_of(marks.lines[0], first[1])[0]
    others = (
        at
        for at, one in places
        if at > start and _begins_another(one, marks, goes_on=at + len(one) == len(text))
    )
    rest = next(others, len(text))
    if may_say(end.token, text[rest:]):
        rest = len(text)
    return f"{text[:start]}{' ' * (behind - start)}{text[behind:rest]}{' ' * (len(text) - rest)}"


def _begins_another(line: str, marks: LabelledFormat, *, goes_on: bool) -> bool:
    """Whether a line begins with a mark after the first one, or may do so when it goes on."""
    shown = plain(line)
    return any(
        begins(line, mark) or (goes_on and plain(mark).startswith(shown))
        for mark in marks.lines[1:]
    )


def _tokens_of(conversation: Conversation, speaker: str | None) -> Iterator[DoneToken]:
    for _, end in leaves(conversation.end_chat.when):
        if isinstance(end, DoneToken) and end.by in (None, speaker):
            yield end
