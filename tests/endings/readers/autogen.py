"""The notebooks of AutoGen 0.2: printed transcripts.

Read: the printed output of each code cell of every ``.ipynb`` file below the folder. Each message
is printed as ``Name (to Other):``, its text and a line of 80 dashes. A cell may contain several
chats: a new chat begins at AutoGen's own line "Start a new chat", or when, without any notice in
between, the first speaker says something else after a termination message. Nested chats, whose
pairs of names differ, are left out. A blank message after the notice "USING AUTO REPLY" is an
automatic reply.

Labels, by rule: a chat should end at its first message whose last line is TERMINATE, or ends with
the word outside of quotation marks, if only blank messages and TERMINATE follow. The word is only
mentioned if it occurs before that. A chat that a person left by ``exit`` is ended by the other
side. Any other chat has no end: the notebook does not say why it stopped, so a stop at its last
message is a tie.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from endings.dialogue import Call, Case, Dialogue, Label, Origin, Turn, Word

WORD = "TERMINATE"
CHAT_MANAGER = "chat_manager"

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NEW_CHAT = re.compile(r"^Start(?:ing)? a new chat with the following message:.*$", re.MULTILINE)
_HEADER = re.compile(r"^(\S[^\n]{0,80}?) \(to ([^\n]{1,80}?)\):\n", re.MULTILINE)
_RULE = re.compile(r"^-{80}$", re.MULTILINE)
_NOTICE = re.compile(r"^(?:>>>>>>>>|Provide feedback to )", re.MULTILINE)
_AUTOMATIC = ">>>>>>>> USING AUTO REPLY"
_SUGGESTED = re.compile(
    r"\*{5} Suggested (?:tool call \((?P<id>[^)]*)\)|function [Cc]all): (?P<name>\S+) \*{5}\n"
    r"Arguments: ?\n(?P<arguments>.*?)\n\*{10,}",
    re.DOTALL,
)
_RESPONSE = re.compile(
    r"\*{5} Response from (?:calling tool|calling function|function|tool)[^\n]*\*{5}\n"
    r"(?P<text>.*?)\n\*{10,}",
    re.DOTALL,
)
_SAYS_WORD = re.compile(
    # The word is alone on the last line, with any marks around it, or plain at the line's end.
    rf"(?:^|\n)[\W_]*{WORD}[\W_]*$|(?<![\"'`“‘\w]){WORD}[.!*_\s]*$"  # noqa: RUF001
)
_LEFT = re.compile(r"to end the conversation: *exit\s*$", re.MULTILINE)


class Printed(NamedTuple):
    """A message in its printed form."""

    speaker: str
    to: str
    text: str
    noticed: bool  # whether a notice was printed before it: of an automatic reply, or a question
    automatic: bool  # whether the notice says that it is an automatic reply


def read(folder: Path) -> Iterator[Dialogue]:
    """Read all chats below a folder."""
    for path in sorted(folder.rglob("*.ipynb")):
        for place, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
            printed = _COLOUR.sub("", _output_of(cell))
            for number, chat in enumerate(_chats(printed)):
                turns = _turns(chat)
                if len(turns) > 1 and _is_flat(chat):
                    left = number == 0 and bool(_LEFT.search(printed))
                    name = f"autogen/{path.stem}/{place}/{number}"
                    label = _label(turns, left=left)
                    yield Dialogue(name, "autogen", turns, label, (Word(WORD, terminates=True),))


def _output_of(cell: dict[str, Any]) -> str:
    outputs = cell.get("outputs", ())
    texts = (one["text"] for one in outputs if one.get("name") == "stdout")
    return "".join(text if isinstance(text, str) else "".join(text) for text in texts)


def _chats(printed: str) -> Iterator[list[Printed]]:
    for part in _NEW_CHAT.split(printed):
        chat = list[Printed]()
        for one in _messages(part):
            before = chat[-1] if chat else None
            ended = before is not None and _SAYS_WORD.search(before.text.strip()) is not None
            begins = ended and not one.noticed and one.speaker == chat[0].speaker
            if begins and one.text.strip() and not _RESPONSE.search(one.text):
                yield chat
                chat = []
            chat.append(one)
        if chat:
            yield chat


def _messages(part: str) -> Iterator[Printed]:
    headers = list(_HEADER.finditer(part))
    at = 0
    for place, header in enumerate(headers):
        follows = headers[place + 1] if place + 1 < len(headers) else None
        text = part[header.end() : follows.start() if follows else len(part)]
        rule = _RULE.search(text)
        if rule is None and (follows is None or not text.strip()):
            # AutoGen prints the header twice before a tool's answer.
            continue
        noticed = bool(_NOTICE.search(part, at, header.start()))
        automatic = _AUTOMATIC in part[at : header.start()]
        at = header.end() + (rule.end() if rule else len(text))
        said = text[: rule.start()] if rule else text
        yield Printed(header[1], header[2], said, noticed, automatic)


def _is_flat(chat: list[Printed]) -> bool:
    """Return whether it is one chat: of a pair, or of a group by its manager."""
    if all(CHAT_MANAGER in one.to or one.to == chat[0].to for one in chat):
        return True
    return len({frozenset((one.speaker, one.to)) for one in chat}) == 1


def _turns(chat: list[Printed]) -> tuple[Turn, ...]:
    turns = list[Turn]()
    for one in chat:
        results = [found["text"] for found in _RESPONSE.finditer(one.text)]
        if results and turns and turns[-1].calls:
            caller = turns[-1]
            given = [*results, *[""] * len(caller.calls)]
            calls = tuple(
                Call(call.name, call.arguments, text, text.startswith("Error"))
                for call, text in zip(caller.calls, given, strict=False)
            )
            turns[-1] = Turn(caller.speaker, caller.text, calls)
            continue
        calls = tuple(
            Call(found["name"], _arguments(found["arguments"]))
            for found in _SUGGESTED.finditer(one.text)
        )
        text = _SUGGESTED.sub("", one.text).strip()
        # A model's answer may also be printed after the notice, but it is never blank.
        turns.append(Turn(one.speaker, text, calls, automatic=one.automatic and not text))
    return tuple(turns)


def _arguments(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {"text": text}
    return found if isinstance(found, dict) else {"text": text}


def _label(turns: tuple[Turn, ...], *, left: bool) -> Label:
    length, end = len(turns), None
    for place in range(length, 0, -1):
        text = turns[place - 1].text.strip()
        if text and WORD not in text:
            break
        end = place if _SAYS_WORD.search(text) else end
    if end is not None:
        mentioned = any(WORD in turn.text for turn in turns[: end - 1])
        case = Case.WORD_MENTIONED if mentioned else Case.WORD_SAID
        return Label(case, end, Origin.RULE, signalled=True)
    if left:
        return Label(Case.OTHER_SIDE, length, Origin.RULE)
    mentioned = any(WORD in turn.text for turn in turns)
    return Label(Case.WORD_MENTIONED if mentioned else Case.NO_END, length + 1, Origin.RULE, length)
