"""The checks of a reply before it enters the conversation, and calls that it writes as text.

Pure functions.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel

from ...graphs.conversation.conversation import (
    Conversation,
    find_first_allowed,
    hand_off_targets,
    read_next_speaker,
)
from ...graphs.conversation.judges import HAND_OFF, Handoff
from ...graphs.ends.call_guards import RepeatedCalls, SameToolCalls
from ...graphs.ends.end import Tallies
from ...graphs.log.heard_text import done_tokens, unanswered_token
from ...graphs.log.marks import plays, read_marks
from ...graphs.log.messages import metadata
from ...graphs.log.metadata import Draft, Flaw, MessageMetadata, Speech, is_by_person
from ...graphs.log.parsing import Parsed, drop_remarks, own_words, parse
from ...graphs.prompts import prompts
from ...graphs.prompts.prompts import Prompt
from ...graphs.rules.turns import Checked, Problem
from ...graphs.speakers.formats import (
    JSON_CUT_OFF,
    BlockFormat,
    CodeFormat,
    LabelledFormat,
    SchemaFormat,
)
from ...graphs.speakers.replies import DATA
from ...graphs.speakers.reply_parts import Stop, StopCause
from ...graphs.speakers.speaker import Speaker
from ...graphs.text.similarity import (
    all_repeat,
    asks,
    asks_to_repeat,
    is_about_messages,
    is_blank,
    is_echo,
    is_equal,
    is_placeholder,
    is_same,
    is_same_move,
    is_short,
    only_announces,
    puts_off,
    repeats,
)
from ...graphs.text.structures import MARKS
from ...graphs.text.written_calls import WrittenCall, ends_with_call, read_written_calls
from ..models.tool_binding import read_transfers
from ..models.tool_calls import find_registered, read_call, split_calls

_JSON: Final = re.compile(r"\bjson\b", re.IGNORECASE)
_WORD: Final = re.compile(r"\w+\b")
_FIRST: Final = 40
"""Number of characters that are searched for the first two words."""

_OF_BLANK: Final = {
    StopCause.FILTER: prompts.WITHHELD_REPLY,
    StopCause.CALL: prompts.UNACCEPTED_CALL,
}
"""The problem of a blank reply by the cause of its end. It is EMPTY_REPLY for other causes."""


@dataclass(frozen=True)
class ReplyCheck:
    """A check of a speaker's reply, which adds the format's missing parts if possible."""

    conversation: Conversation
    speaker: Speaker
    log: Sequence[BaseMessage] = ()
    """The messages before the reply, as the speaker hears them."""
    schema: type[BaseModel] | None = None
    """The pydantic model of the speaker's format."""
    stop: Stop | None = None
    """Why the reply stopped early. Then its end may be missing. None if it did not."""
    handed_to: Sequence[str] = ()
    """The next speakers that the reply names. A reply that names one may be without text."""
    aloud: bool = True
    """Whether others hear the reply. Only then a done token counts."""

    def check(self, text: str) -> Checked:
        """Return the reply as it would be said, with its problem."""
        log, speaker = self.log, self.speaker
        is_again = bool(log) and log[-1].name == speaker.name
        request = rewrite_request(self.conversation, metadata(log[-1])) if is_again else ""
        said = self._remove_request(text, request) if request else text
        if self.has_done_token(text):
            text = said if self.has_done_token(said) else text
            return Checked(text, self._check_done_token(text) if self.aloud else None)
        if said != text and is_blank(said):
            return self._report_no_content("")
        text = said
        misnamed = self._check_next_speaker(self.handed_to) if self.handed_to else None
        if misnamed is not None or (self.handed_to and not text.strip()):
            return Checked(text, misnamed)
        if not text.strip():
            prompt = _OF_BLANK.get(self.stop.cause) if self.stop is not None else None
            return Checked(text, self._make_problem(Flaw.BLANK, prompt or prompts.EMPTY_REPLY))
        may_call = speaker.tools or hand_off_targets(self.conversation, speaker.name)
        if may_call and self._writes_call(text):
            return Checked(text, self._make_problem(Flaw.WRITTEN_CALL, prompts.WRITTEN_CALL))
        flipped = plays(self.conversation, speaker, text)
        if flipped is not None:
            names = {"me": speaker.name, "other": flipped}
            problem = self._make_problem(Flaw.ROLE_FLIP, prompts.WRONG_SPEAKER, **names)
            return Checked(text, problem)
        is_formed = speaker.format is not None
        read = self._read(text) if is_formed else Parsed()
        text = read.text or text
        own = own_words(speaker, text, read.value) if is_formed else text
        if self._has_no_content(text, own, read):
            return self._report_no_content(text)
        if only_announces(own) and (request or not self._is_of_messages(log)):
            return self._report_no_content(text)
        unfit = self._check_format(read)
        return Checked(text, unfit or self._find_repetition(text, own), own)

    def has_done_token(self, text: str) -> bool:
        """Return whether a reply contains a done token that counts."""
        return bool(done_tokens(self.conversation, self.speaker.name, text, self.log))

    def take_written_calls(self, tools: Sequence[BaseTool], answer: AIMessage) -> AIMessage:
        """Return an answer in which a text that is only calls of offered tools is these calls.

        Calls as plain JSON count only if the speaker is not to show JSON.
        """
        has_calls = answer.tool_calls or answer.invalid_tool_calls
        found = None if has_calls else read_written_calls(answer.text)
        if found is None or not (found.is_marked or not self._shows_json()):
            return answer
        offered = {tool.name: tool for tool in tools}
        names = {name: name for name in offered}
        calls = []
        for written in found.calls:
            name = find_registered(written.name, names)
            calls.append(read_call(name, _convert_arguments(written, offered.get(name)), None))
        good, broken = split_calls(calls)
        made = answer.model_copy(
            update={"content": "", "tool_calls": good, "invalid_tool_calls": broken}
        )
        made = read_transfers(self.conversation, self.speaker, made)
        called = {str(call["name"]) for call in (*made.tool_calls, *made.invalid_tool_calls)}
        return made if called <= {*offered, *self._hand_off_tools()} else answer

    def _writes_call(self, text: str) -> bool:
        """Return whether a reply contains a call as text, at its end, that is no part of it.

        The reply of a speaker with a JSON format contains none.
        """
        if isinstance(self.speaker.format, SchemaFormat):
            return False
        names = {name: name for name in (*self.speaker.tools, *self._hand_off_tools())}
        found = read_written_calls(text)
        if found is not None and found.is_marked and not text.lstrip().startswith(MARKS):
            return True
        plain = not self._shows_json()
        return ends_with_call(text, lambda name: find_registered(name, names) in names, plain=plain)

    def _hand_off_tools(self) -> tuple[str, ...]:
        return (HAND_OFF,) if hand_off_targets(self.conversation, self.speaker.name) else ()

    def _shows_json(self) -> bool:
        """Return whether the speaker is to show JSON, by its format, task or newest message."""
        if isinstance(self.speaker.format, SchemaFormat):
            return True
        texts = (*self._list_requests(self.log), self.speaker.system_prompt or "")
        return any(map(_JSON.search, texts))

    def _list_requests(self, log: Sequence[BaseMessage]) -> list[str]:
        """Return the texts that may ask for a certain reply: the tasks and the newest message."""
        newest = next((one.text for one in reversed(log) if isinstance(metadata(one), Speech)), "")
        return [text for text in (self.conversation.task, self.speaker.task, newest) if text]

    def _make_problem(self, flaw: Flaw, prompt: Prompt, **values: object) -> Problem:
        """Return a problem with its text for the model."""
        return Problem(flaw=flaw, text=self.conversation.render_prompt(prompt, **values))

    def _report_no_content(self, text: str) -> Checked:
        return Checked(text, self._make_problem(Flaw.NO_REPLY, prompts.NO_CONTENT))

    def _check_done_token(self, text: str) -> Problem | None:
        """Return the problem of a done token that is sent before another speaker has replied."""
        token = unanswered_token(self.conversation, self.speaker.name, text, self.log)
        if token is None:
            return None
        return self._make_problem(Flaw.UNANSWERED, prompts.PREMATURE_END, token=token)

    def _check_format(self, read: Parsed) -> Problem | None:
        """Return the problem that was found when a reply was parsed by its format, or None."""
        if read.problem is not None:
            return Problem(flaw=Flaw.FORM, text=read.problem)
        if not isinstance(self.conversation.turn_order, Handoff):
            return None
        return self._check_next_speaker(read_next_speaker(self.conversation, read.value))

    def _check_next_speaker(self, given: Sequence[str]) -> Problem | None:
        """Return the problem of a reply that names only speakers who cannot be next."""
        conversation, name = self.conversation, self.speaker.name
        if not given or find_first_allowed(conversation, name, given) is not None:
            return None
        names = ", ".join(hand_off_targets(conversation, name))
        other = given[0] or "An empty name"
        return self._make_problem(Flaw.NOT_NEXT, prompts.HAND_OFF_REFUSED, other=other, names=names)

    def _read(self, text: str) -> Parsed:
        """Read a reply by its format. If it has stopped early, its missing parts are accepted."""
        form, stop = self.speaker.format, self.speaker.model_settings.stop
        if self.stop is not None:
            stop = ()
            match form:
                case LabelledFormat():
                    missing = {"lines": form.lines[:1], "end": None, "optional": ()}
                    form = form.model_copy(update=missing)
                case BlockFormat():
                    stop = (form.end,)
                case CodeFormat():
                    stop = MARKS
        if form is None:
            return Parsed()
        read = parse(form, text, stop=stop, schema=self.schema, name=self.speaker.name)
        is_cut_off = self.stop is not None and self.stop.is_of_length
        if read.problem is not None and is_cut_off and isinstance(form, SchemaFormat):
            return Parsed(problem=JSON_CUT_OFF)
        return read

    def _has_no_content(self, text: str, own: str, read: Parsed) -> bool:
        """Return whether a reply only repeats its speaker's instructions."""
        prompt, marks = self.speaker.system_prompt or "", self.speaker.marks
        if marks is not None:
            if is_blank(own):
                return True
            parsed = [*map(str, read.value.values())] if isinstance(read.value, dict) else None
            values = parsed or read_marks(marks.lines, marks.end, text) or ()
            given = (
                one
                for mark, one in zip(marks.lines, values, strict=False)
                if mark not in marks.optional
            )
            if any(is_blank(one) or is_placeholder(one, prompt, marks.lines) for one in given):
                return True
        # A speaker may repeat its task, so the task does not count.
        instructions = prompt or prompts.SPEAKER_LABELS
        if not prompt and self.conversation.prompts:
            instructions = self.conversation.render_prompt(prompts.SPEAKER_LABELS)
        is_open = not own[:1].isalnum() and is_placeholder(own, prompt)
        return is_open or repeats(own, instructions)

    def _remove_request(self, text: str, request: str) -> str:
        """Return a retried reply without echoes of the retry request and without announcements."""
        if isinstance(self.speaker.format, SchemaFormat):
            # Sentences within JSON are no prose. Only the whole text can repeat the request.
            return "" if all_repeat(text, request) else text
        announced = not self._is_of_messages(())
        return drop_remarks(self.speaker, text, request, announced=announced)

    def _is_of_messages(self, log: Sequence[BaseMessage]) -> bool:
        """Return whether the task, or the newest message in a log, asks for a message's text."""
        return any(map(is_about_messages, self._list_requests(log)))

    def _find_repetition(self, text: str, own: str) -> Problem | None:
        """Return the problem of a reply that its speaker or another speaker has sent before."""
        if self._is_repeated(text):
            return self._make_problem(Flaw.REPEATED, prompts.REPEATED_REPLY)
        echoed = self._find_echoed_speaker(own)
        if echoed is None:
            return None
        return self._make_problem(Flaw.ECHO, prompts.ECHOED_REPLY, other=echoed)

    def _is_repeated(self, text: str) -> bool:
        """Return whether a reply repeats the speaker's last message, and nothing new came since."""
        if is_short(text):
            return False
        speeches = _iterate_speeches(self.log)
        newest = own = next(speeches, None)
        heard = list[BaseMessage]()
        while own is not None and own[1].speaker != self.speaker.name:
            heard.append(own[0])
            own = next(speeches, None)
        if newest is None or own is None or not is_equal(own[0].text, text):
            return False
        # The answer may be the same if a person asks the same again, or if the messages are two
        # moves of a game. A first message answers none.
        earlier = [one for one, _ in speeches]
        before = earlier[0] if earlier else None
        if own is not newest and before is not None:
            second, about = newest
            asks_again = is_by_person(about) and is_equal(before.text, second.text)
            if asks_again or not is_same_move(before.text, second.text):
                return False
        return not any(_is_new(one, earlier) for one in heard)

    def _find_echoed_speaker(self, own: str) -> str | None:
        """Return the speaker whose message a reply echoes, or None.

        Only messages since the speaker's own last message count.
        """
        if not self.conversation.end_chat.guards.echo:
            return None
        first = _take_first_words(own)
        for place in reversed(range(len(self.log))):
            about = metadata(self.log[place])
            if not isinstance(about, Speech) or about.source in DATA:
                continue
            if about.speaker is None or about.speaker == self.speaker.name:
                return None
            if about.audience is not None and self.speaker.name not in about.audience:
                continue
            other, said = self.conversation.speaker(about.speaker), str(self.log[place].text)
            said = said if other.format is None else own_words(other, said, about.parsed)
            # The cheap check comes first: most messages begin with other words.
            if _take_first_words(said) == first and is_echo(own, said):
                return None if self._is_asked_to_repeat(self.log[:place]) else about.speaker
        return None

    def _is_asked_to_repeat(self, log: Sequence[BaseMessage]) -> bool:
        """Return whether the speaker was asked to repeat a message, such as a vow or a lesson."""
        said = (
            one.text for one, about in _iterate_speeches(log) if about.speaker != self.speaker.name
        )
        tasks = filter(None, (self.conversation.task, self.speaker.task))
        return any(map(asks_to_repeat, (*tasks, *said)))


def check_repeated_calls(
    conversation: Conversation, message: AIMessage, tallies: Tallies
) -> Problem | None:
    """Return the problem of calls that reach the limit on repeated calls."""
    limit, tally = SameToolCalls.limit(conversation), tallies[SameToolCalls.reason]
    assert isinstance(tally, RepeatedCalls)  # noqa: S101  # the guard creates it
    if not limit or tally.count_with(message) < max(limit, 2):
        return None
    called = (*message.tool_calls, *message.invalid_tool_calls)
    tools = " and ".join(dict.fromkeys(str(one["name"]) for one in called))
    text = conversation.render_prompt(prompts.REPEATED_CALLS, tools=tools)
    return Problem(flaw=Flaw.SAME_CALLS, text=text)


def _convert_arguments(call: WrittenCall, tool: BaseTool | None) -> object:
    """Return the arguments of a call. Values from tags get the types that the tool declares."""
    if not call.is_text or tool is None or not isinstance(call.arguments, dict):
        return call.arguments
    parameters = convert_to_openai_tool(tool)["function"].get("parameters") or {}
    properties = parameters.get("properties") or {}
    return {
        key: _convert_value(text, properties.get(key) or {}) for key, text in call.arguments.items()
    }


def _convert_value(text: str, schema: Mapping[str, Any]) -> object:
    kinds = [schema.get("type"), *(one.get("type") for one in schema.get("anyOf") or ())]
    if "string" in kinds:
        return text
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text.strip())
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return text


def rewrite_request(conversation: Conversation, draft: MessageMetadata) -> str:
    """Return the request for another version of a draft. Empty if the message is no draft."""
    if not isinstance(draft, Draft):
        return ""
    problem = draft.problem or ""
    # A reply that was cut off has no flaw. Its problem is the request to continue. A call is not
    # repeated in words.
    if draft.flaw is None or (draft.stop is not None and draft.stop.cause is StopCause.CALL):
        return problem
    request = _REQUESTS.get(draft.flaw, prompts.REWRITE_REPLY)
    return conversation.render_prompt(request, problem=problem)


_REQUESTS: Final = {
    Flaw.SAME_CALLS: prompts.STOP_REPEATED_CALLS,
    Flaw.WRITTEN_CALL: prompts.CALL_TOOL,
}
"""The request for another version by its flaw, if it is not to rewrite the reply."""


def _is_new(message: BaseMessage, earlier: Sequence[BaseMessage]) -> bool:
    """Return whether a message says something new: no question, and nothing said before."""
    text = message.text
    is_empty = is_blank(text) or asks(text) or (is_short(text) and puts_off(text))
    is_known = any(is_same(one.text, text) or is_equal(one.text, text) for one in earlier)
    return not (is_empty or is_known)


def _iterate_speeches(
    log: Sequence[BaseMessage],
) -> Iterator[tuple[BaseMessage, MessageMetadata]]:
    """Yield the speeches with their metadata, newest first."""
    for message in reversed(log):
        about = metadata(message)
        if isinstance(about, Speech):
            yield message, about


def _take_first_words(text: str) -> list[str]:
    """Return the first two words of a text, case-folded."""
    found: list[str] = _WORD.findall(text[:_FIRST].casefold(), 0, _FIRST)
    return found[:2]
