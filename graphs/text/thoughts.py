"""Separation of a model's reasoning from its speech. Pure functions.

Models write `<think>…</think>` or another tag before their speech, or a channel for each, as in
OpenAI's harmony format. Some servers send only the closing tag. An answer that is cut off may lack
the closing tag. A tag in code is code, unless the message begins with it.

A chat template ends a message with a control token. A server whose template does not fit the model
passes the token on as text, although it is no part of the message.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from .structures import CodeFinder, Span, is_in_open_fence

ENDS: Final = ("<|end|>", "<|return|>", "<|call|>")
"""The tokens that end a message in OpenAI's harmony format."""

TOKENS: Final = (
    *ENDS,
    # Llama 3.
    *("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"),
    # ChatML, as Qwen and many others.
    *("<|im_end|>", "<|endoftext|>"),
    # Llama 2 and Mistral, Gemma.
    *("</s>", "<end_of_turn>", "<eos>"),
    # Cohere, OpenChat, DeepSeek, Granite.
    *("<|end_of_turn_token|>", "<|end_of_turn|>", "<|eot|>", "<｜end▁of▁sentence｜>"),  # noqa: RUF001
    *("<|end_of_role|>", "<|endofturn|>", "<|eos|>"),
)
"""The control tokens, in lower case. Their case in an answer does not matter."""

_LONGEST: Final = max(map(len, TOKENS))
_STRUCK: Final = "<s>"
"""The tag that ``</s>`` closes in HTML."""


def end_of_words(text: str, begin: int = 0, end: int | None = None) -> int:
    """Return the index from which a text contains only control tokens.

    White space between and after the tokens belongs to them. White space before them does not.

    Args:
        text: The text.
        begin: The lowest index that is returned.
        end: The index at which the text ends. The length of the text if None.
    """
    found = end = len(text) if end is None else end
    while True:
        while end > begin and text[end - 1].isspace():
            end -= 1
        tail = text[max(begin, end - _LONGEST) : end].lower()
        last = next((one for one in TOKENS if tail.endswith(one)), None)
        if last is None or (last == "</s>" and _STRUCK in text[:end].lower()):
            return found
        found = end = end - len(last)


_NAMES: Final = ("think", "thinking", "thought", "reasoning", "seed:think")
_PAIRS: Final = {f"<{name}>": f"</{name}>" for name in _NAMES} | {"◁think▷": "◁/think▷"}
"""The tags that open a thought, each with its closing tag."""

_START, _CHANNEL, _CONSTRAIN, _MESSAGE = (
    re.escape(f"<|{name}|>") for name in ("start", "channel", "constrain", "message")
)
_ENDS: Final = "|".join(map(re.escape, ENDS))
_ROLE, _TO, _FORM = r"[^<◁\n]{0,99}", r"[^<◁\n]{0,199}", r"[^<◁\n]{0,99}"
# The role, the channel, the recipient and the format, as in
# "<|start|>assistant<|channel|>final<|message|>".
_HEADER: Final = (
    rf"(?:{_START}(?P<role>{_ROLE})(?:{_CHANNEL}(?P<first>{_TO}))?|{_CHANNEL}(?P<second>{_TO}))"
    rf"(?:{_CONSTRAIN}{_FORM})?{_MESSAGE}"
)
_BEGUN: Final = re.compile(
    rf"(?:{_START}{_ROLE}(?:{_CHANNEL}{_TO})?|{_CHANNEL}{_TO})(?:{_CONSTRAIN}{_FORM})?\Z",
    re.IGNORECASE,
)
"""An unfinished header."""

_LONGEST_HEADER: Final = 500
"""Maximum length of a header in characters, including the end token of the message before it."""

_TAG: Final = re.compile(
    rf"{'|'.join(map(re.escape, (*_PAIRS, *_PAIRS.values())))}|(?:(?:{_ENDS})\s{{0,9}})?{_HEADER}",
    re.IGNORECASE,
)
_CLOSES: Final = {
    opening: re.compile(re.escape(closing), re.IGNORECASE) for opening, closing in _PAIRS.items()
}
_CLOSES_CHANNEL: Final = re.compile(rf"{_ENDS}|{_HEADER}", re.IGNORECASE)
_BEGINNINGS: Final = (
    *(*_PAIRS, *_PAIRS.values(), *TOKENS),
    *("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"),
)
"""Tags and tokens. Text that may be the beginning of a tag or token is withheld."""

_SPACE, _BLANKS = re.compile(r"\s*"), re.compile(r"[ \t]*")
_BEFORE_MENTION, _AFTER_MENTION = re.compile(r"[\w,] \Z"), re.compile(r" +[^\W\d_]|[.,;:!?)]")


class Split(NamedTuple):
    """A text, separated into speech and thought."""

    speech: str
    """The speech."""
    thought: str
    """The reasoning."""
    is_unopened: bool
    """Whether a tag closes a thought that no tag has opened."""
    text: str
    """The text without the control tokens at its end."""


def split(text: str) -> Split:
    """Separate the reasoning and the speech of a whole text."""
    if "<" not in text and "◁" not in text:
        return Split(text, "", is_unopened=False, text=text)
    reader = ThoughtReader()
    reader.take(text, is_over=True)
    return Split(reader.speech, reader.thought, reader.is_unopened, reader.text)


def thoughts(text: str) -> list[Span]:
    """Return the parts of a text that are not speech, in order: thoughts, and final control tokens.

    A thought includes its tags and the space around them.
    """
    if "<" not in text and "◁" not in text:
        return []
    reader = ThoughtReader()
    reader.take(text, is_over=True)
    end = len(reader.text)
    is_more = end < len(text) and (not reader.spans or reader.spans[-1][1] <= end)
    return [*reader.spans, (end, len(text))] if is_more else reader.spans


class Told(NamedTuple):
    """The speech in a new piece of a text."""

    speech: str
    """New speech."""
    anew: bool = False
    """Whether all earlier speech turned out to be thought."""


class ThoughtReader:
    """A reader that separates thought from speech in a text that arrives in pieces.

    The result does not depend on the pieces: text that may be a tag is withheld.

    Args:
        is_unopened: Whether the thought is expected to begin without a tag. If true, no speech is
            returned before a tag has arrived.
    """

    def __init__(self, *, is_unopened: bool = False) -> None:
        self.spans: list[Span] = []
        """The thoughts so far."""
        self.is_unopened = False
        """Whether a tag has closed a thought that no tag has opened."""
        self._inside: list[Span] = []
        self._text = ""
        self._end: int | None = None
        self._told = 0
        self._sought = 0
        self._begin = 0
        self._opened = 0
        self._closing: re.Pattern[str] | None = None
        self._space: re.Pattern[str] | None = None
        self._waits = is_unopened
        self._has_told = False
        self._code = CodeFinder()

    @property
    def text(self) -> str:
        """The text so far, without control tokens at its end."""
        return self._text[: self._end]

    @property
    def speech(self) -> str:
        """The speech so far."""
        return "".join(self._text[start:end] for start, end in self._said())

    @property
    def thought(self) -> str:
        """The reasoning so far."""
        inside = (self._text[start:end].strip() for start, end in self._inside)
        return "\n\n".join(filter(None, inside))

    def take(self, piece: str, *, is_over: bool = False) -> Told:
        """Read the next piece of the text, and return its speech. `is_over` marks the last one."""
        self._text += piece
        before, anew = self._has_told, False
        told: list[str] = []
        while (tag := self._next_tag(is_over=is_over)) is not None:
            self._waits = False
            is_header = tag[0].lower().endswith("<|message|>")
            if self._closing is not None:
                # Another channel begins, so its reasoning is a separate thought.
                goes_on = is_header and not _is_final(tag)
                self._close(tag.start(), tag.start() if goes_on else tag.end())
                continue
            closing = _CLOSES_CHANNEL if is_header else _CLOSES.get(tag[0].lower())
            is_known = bool(self.spans) or not self._text[: tag.start()].strip()
            if closing is None or (is_header and _is_final(tag) and not is_known):
                # The thought's opening tag is in the prompt, as in some templates.
                self.is_unopened, self._begin, self._opened = True, 0, 0
                self.spans, self._inside = [], []
                told, anew, self._has_told = [], before, False
                self._close(tag.start(), tag.end())
                continue
            told.append(self._tell(tag.start()))
            self._begin, self._opened, self._sought = self._told, tag.end(), tag.end()
            if is_header and _is_final(tag):
                self._close(tag.end(), tag.end())
            else:
                self._closing = closing
        told.append(self._rest(is_over=is_over))
        return Told("".join(told), anew)

    def _next_tag(self, *, is_over: bool) -> re.Match[str] | None:
        """Return the next tag that opens or closes a thought."""
        if self._space is not None:
            self._told = self._space.match(self._text, self._told).end()  # type: ignore[union-attr]
            self.spans[-1] = (self.spans[-1][0], self._told)
            if self._told < len(self._text):
                self._space = None
        if self._closing is not None:
            tag = self._closing.search(self._text, self._sought)
            if tag is not None or not (is_over and self._is_mentioned()):
                return tag
            self._closing, self._sought = None, self._opened
        for tag in _TAG.finditer(self._text, max(self._sought, self._told)):
            is_code = self._is_code(tag.start(), is_over=is_over)
            if is_code is None:
                break
            if not is_code:
                return tag
            self._sought = tag.end()
        return None

    def _is_mentioned(self) -> bool:
        """Return whether the open tag is a word of a sentence, as in "the <think> tag"."""
        near = self._text[max(0, self._begin - 2) : self._begin]
        after = _AFTER_MENTION.match(self._text, self._opened)
        return (
            self._closing is not _CLOSES_CHANNEL
            and _BEFORE_MENTION.search(near) is not None
            and after is not None
            and after[0][-1] == after[0][-1].lower()
        )

    def _is_code(self, at: int, *, is_over: bool) -> bool | None:
        """Return whether a tag is in code, or None if the next piece decides."""
        if not self._has_told and not self._text[self._told : at].strip():
            return False
        behind = self.spans[-1][1] if self.spans else 0
        return self._code.contains(self._text, at, behind, is_over=is_over)

    def _tell(self, end: int) -> str:
        """Return the text up to an index as speech. White space before all speech is omitted."""
        found = self._text[self._told : end]
        if not self._has_told and not found.strip():
            return ""
        self._told, self._has_told = end, True
        return found

    def _close(self, inner_end: int, end: int) -> None:
        self.spans.append((self._begin, end))
        self._inside.append((self._opened, inner_end))
        self._closing = None
        self._told = self._sought = end
        if not self._has_told:
            self._space = _SPACE
        elif self._text[self._begin - 1].isspace():
            self._space = _BLANKS

    def _rest(self, *, is_over: bool) -> str:
        """Return the part of the text after the last tag that is certainly speech."""
        if self._closing is not None:
            self._sought = max(self._sought, len(self._text) - _LONGEST_HEADER)
            if is_over:
                self._end = end_of_words(self._text, self._opened)
                self._close(self._end, len(self._text))
            return ""
        if is_over:
            self._end = end = self._end_of_speech()
            found, self._told = self._text[self._told : end], len(self._text)
            return found
        return "" if self._waits else self._tell(max(self._told, self._open_at()))

    def _end_of_speech(self) -> int:
        """Return the index from which the whole text contains only control tokens."""
        behind = self.spans[-1][1] if self.spans else 0
        # A header that was cut off follows the end of a message.
        begun = self._open_at()
        rest = self._text[begun:].lower()
        if rest.startswith(ENDS) or (self.spans and begun == behind and rest.startswith("<|")):
            end = begun
        else:
            end = end_of_words(self._text, self._told)
        return len(self._text) if is_in_open_fence(self._text[behind:end]) else end

    def _open_at(self) -> int:
        """Return the index from which the text so far may be a tag."""
        text, since = self._text, max(self._sought, self._told)
        tag = _TAG.search(text, since)
        if tag is not None:
            # The tag may be code.
            return end_of_words(text, since, tag.start())
        at = max(text.rfind("<", since), text.rfind("◁", since))
        tail = text[at:].lower() if at >= 0 else ""
        if not (tail and any(one.startswith(tail) for one in _BEGINNINGS)):
            at = len(text)
        header = _BEGUN.search(text, max(since, at - _LONGEST_HEADER), at)
        return end_of_words(text, since, header.start() if header else at)

    def _said(self) -> Iterator[Span]:
        at = 0
        for start, end in self.spans:
            yield at, start
            at = end
        end = len(self._text) if self._end is None else self._end
        yield at, end if self._closing is None else self._begin


def _is_final(header: re.Match[str]) -> bool:
    """Return whether the message after a header is speech: an answer to everyone."""
    channel = header["first"] or header["second"] or ""
    is_plain = not channel and (header["role"] or "").strip().casefold() == "assistant"
    return is_plain or channel.strip().casefold() == "final"
