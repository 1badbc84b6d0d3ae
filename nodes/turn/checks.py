"""The checks of a reply before it enters the conversation, and calls that it writes as text.

Pure functions.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
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


def take_written_calls(
    conversation: Conversation,
    speaker: Speaker,
    log: Sequence[BaseMessage],
    tools: Sequence[BaseTool],
    answer: AIMessage,
) -> AIMessage:
    """Return an answer in which a text that is nothing but calls of offered tools is these calls.

    Calls as plain JSON count only if the speaker is not to show JSON.
    """
    has_calls = answer.tool_calls or answer.invalid_tool_calls
    found = None if has_calls else read_written_calls(answer.text)
    if found is None or not (found.is_marked or not _shows_json(conversation, speaker, log)):
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
    made = read_transfers(conversation, speaker, made)
    called = {str(call["name"]) for call in (*made.tool_calls, *made.invalid_tool_calls)}
    return made if called <= {*offered, *_list_hand_off_tools(conversation, speaker)} else answer


def writes_call(
    conversation: Conversation, speaker: Speaker, log: Sequence[BaseMessage], text: str
) -> bool:
    """Return whether a reply contains a call as text, at its end, that is no part of the message.

    The reply of a speaker with a JSON format contains none.
    """
    tools = (*speaker.tools, *_list_hand_off_tools(conversation, speaker))
    if isinstance(speaker.format, SchemaFormat):
        return False
    names = {name: name for name in tools}
    found = read_written_calls(text)
    if found is not None and found.is_marked and not text.lstrip().startswith(MARKS):
        return True
    plain = not _shows_json(conversation, speaker, log)
    return ends_with_call(text, lambda name: find_registered(name, names) in names, plain=plain)


def _list_hand_off_tools(conversation: Conversation, speaker: Speaker) -> tuple[str, ...]:
    return (HAND_OFF,) if hand_off_targets(conversation, speaker.name) else ()


def _shows_json(conversation: Conversation, speaker: Speaker, log: Sequence[BaseMessage]) -> bool:
    """Return whether a speaker is to show JSON, by its format, task or newest message."""
    if isinstance(speaker.format, SchemaFormat):
        return True
    newest = next((one.text for one in reversed(log) if isinstance(metadata(one), Speech)), "")
    texts = filter(None, (conversation.task, speaker.task, speaker.system_prompt, newest))
    return any(_JSON.search(text) for text in texts)


_JSON: Final = re.compile(r"\bjson\b", re.IGNORECASE)


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


def check_reply(
    conversation: Conversation,
    speaker: Speaker,
    text: str,
    log: Sequence[BaseMessage],
    schema: type[BaseModel] | None = None,
    *,
    stop: Stop | None = None,
    handed_to: Sequence[str] = (),
    aloud: bool = True,
) -> Checked:
    """Check a reply, and add the format's missing parts if possible.

    A reply that has stopped early may lack its end. A reply without text may still name the next
    speaker. A done token counts only if others hear the reply.
    """
    is_again = bool(log) and log[-1].name == speaker.name
    request = rewrite_request(conversation, metadata(log[-1])) if is_again else ""
    said = _remove_request(conversation, speaker, text, request) if request else text
    if has_done_token(conversation, speaker, text, log):
        text = said if has_done_token(conversation, speaker, said, log) else text
        return Checked(text, _check_done_token(conversation, speaker, text, log) if aloud else None)
    if said != text and is_blank(said):
        return _report_no_content(conversation, "")
    text = said
    misnamed = _check_next_speaker(conversation, speaker, handed_to) if handed_to else None
    if misnamed is not None or (handed_to and not text.strip()):
        return Checked(text, misnamed)
    if not text.strip():
        prompt = _OF_BLANK.get(stop.cause) if stop is not None else None
        return Checked(text, _make_problem(conversation, Flaw.BLANK, prompt or prompts.EMPTY_REPLY))
    may_call = speaker.tools or hand_off_targets(conversation, speaker.name)
    if may_call and writes_call(conversation, speaker, log, text):
        return Checked(text, _make_problem(conversation, Flaw.WRITTEN_CALL, prompts.WRITTEN_CALL))
    flipped = plays(conversation, speaker, text)
    if flipped is not None:
        values = {"me": speaker.name, "other": flipped}
        return Checked(
            text, _make_problem(conversation, Flaw.ROLE_FLIP, prompts.WRONG_SPEAKER, **values)
        )
    is_formed = speaker.format is not None
    read = _read(speaker, text, schema, stop) if is_formed else Parsed()
    text = read.text or text
    own = own_words(speaker, text, read.value) if is_formed else text
    if _has_no_content(conversation, speaker, text, own, read):
        return _report_no_content(conversation, text)
    if only_announces(own) and (request or not _is_of_messages(conversation, speaker, log)):
        return _report_no_content(conversation, text)
    hands_over = isinstance(conversation.turn_order, Handoff)
    unfit = _check_format(conversation, speaker, read) if read.problem or hands_over else None
    if unfit is not None:
        return Checked(text, unfit, own)
    return Checked(text, _find_repetition(conversation, speaker, text, own, log), own)


def _make_problem(
    conversation: Conversation, flaw: Flaw, prompt: Prompt, **values: object
) -> Problem:
    """Return a problem with its text for the model."""
    return Problem(flaw=flaw, text=conversation.render_prompt(prompt, **values))


def _find_repetition(
    conversation: Conversation, speaker: Speaker, text: str, own: str, log: Sequence[BaseMessage]
) -> Problem | None:
    """Return the problem of a reply that its speaker or another speaker has sent before."""
    if _is_repeated(speaker, text, log):
        return _make_problem(conversation, Flaw.REPEATED, prompts.REPEATED_REPLY)
    echoed = _find_echoed_speaker(conversation, speaker, own, log)
    if echoed is None:
        return None
    return _make_problem(conversation, Flaw.ECHO, prompts.ECHOED_REPLY, other=echoed)


def _report_no_content(conversation: Conversation, text: str) -> Checked:
    return Checked(text, _make_problem(conversation, Flaw.NO_REPLY, prompts.NO_CONTENT))


def _check_done_token(
    conversation: Conversation, speaker: Speaker, text: str, log: Sequence[BaseMessage] = ()
) -> Problem | None:
    """Return the problem of a done token that is sent before another speaker has replied."""
    token = unanswered_token(conversation, speaker.name, text, log)
    if token is None:
        return None
    return _make_problem(conversation, Flaw.UNANSWERED, prompts.PREMATURE_END, token=token)


def _check_format(conversation: Conversation, speaker: Speaker, read: Parsed) -> Problem | None:
    """Return the problem that was found when a reply was parsed by its format, or None."""
    if read.problem is not None:
        return Problem(flaw=Flaw.FORM, text=read.problem)
    return _check_next_speaker(conversation, speaker, read_next_speaker(conversation, read.value))


def _check_next_speaker(
    conversation: Conversation, speaker: Speaker, given: Sequence[str]
) -> Problem | None:
    """Return the problem of a reply that names only speakers who cannot be next."""
    if not given or find_first_allowed(conversation, speaker.name, given) is not None:
        return None
    names = ", ".join(hand_off_targets(conversation, speaker.name))
    other = given[0] or "An empty name"
    return _make_problem(
        conversation, Flaw.NOT_NEXT, prompts.HAND_OFF_REFUSED, other=other, names=names
    )


_WORD: Final = re.compile(r"\w+\b")
_FIRST: Final = 40
"""Number of characters that are searched for the first two words."""


_OF_BLANK: Final = {
    StopCause.FILTER: prompts.WITHHELD_REPLY,
    StopCause.CALL: prompts.UNACCEPTED_CALL,
}
"""The problem of a blank reply by the cause of its end. It is EMPTY_REPLY for other causes."""


def _read(
    speaker: Speaker, text: str, schema: type[BaseModel] | None, stopped: Stop | None
) -> Parsed:
    """Read a reply by its format. If it has stopped early, its missing parts are accepted."""
    form, stop = speaker.format, speaker.model_settings.stop
    if stopped is not None:
        match form:
            case LabelledFormat():
                form = form.model_copy(
                    update={"lines": form.lines[:1], "end": None, "optional": ()}
                )
            case BlockFormat():
                stop = (form.end,)
            case CodeFormat():
                stop = MARKS
    if form is None:
        return Parsed()
    read = parse(form, text, stop=stop, schema=schema, name=speaker.name)
    is_cut_off = stopped is not None and stopped.is_of_length
    if read.problem is not None and is_cut_off and isinstance(form, SchemaFormat):
        return Parsed(problem=JSON_CUT_OFF)
    return read


def has_done_token(
    conversation: Conversation, speaker: Speaker, text: str, log: Sequence[BaseMessage] = ()
) -> bool:
    """Return whether a message contains a done token that counts."""
    return bool(done_tokens(conversation, speaker.name, text, log))


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
    return _make_problem(conversation, Flaw.SAME_CALLS, prompts.REPEATED_CALLS, tools=tools)


def _has_no_content(
    conversation: Conversation,
    speaker: Speaker,
    text: str,
    own: str,
    read: Parsed,
) -> bool:
    """Return whether a reply only repeats its speaker's instructions."""
    prompt, form = speaker.system_prompt or "", speaker.format
    marks = form if isinstance(form, LabelledFormat) else None
    values = [*map(str, read.value.values())] if isinstance(read.value, dict) else None
    if marks is not None:
        values = values or read_marks(marks.lines, marks.end, text)
    if marks is not None and is_blank(own):
        return True
    if marks is not None and values is not None:
        given = (
            one
            for mark, one in zip(marks.lines, values, strict=False)
            if mark not in marks.optional
        )
        if any(is_blank(one) or is_placeholder(one, prompt, marks.lines) for one in given):
            return True
    # A speaker may repeat its task, so the task does not count.
    instructions = prompt or prompts.SPEAKER_LABELS
    if not prompt and conversation.prompts:
        instructions = conversation.render_prompt(prompts.SPEAKER_LABELS)
    is_open = not own[:1].isalnum() and is_placeholder(own, prompt)
    return is_open or repeats(own, instructions)


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


def _remove_request(conversation: Conversation, speaker: Speaker, text: str, request: str) -> str:
    """Return a retried reply without echoes of the retry request and without announcements."""
    if isinstance(speaker.format, SchemaFormat):
        # Sentences within JSON are no prose. Only the whole text can repeat the request.
        return "" if all_repeat(text, request) else text
    announced = not _is_of_messages(conversation, speaker)
    return drop_remarks(speaker, text, request, announced=announced)


def _is_of_messages(
    conversation: Conversation, speaker: Speaker, log: Sequence[BaseMessage] = ()
) -> bool:
    """Return whether the task, or the newest message in the log, asks for a message's text."""
    newest = next((one.text for one in reversed(log) if isinstance(metadata(one), Speech)), "")
    return any(map(is_about_messages, filter(None, (conversation.task, speaker.task, newest))))


def _is_repeated(speaker: Speaker, text: str, log: Sequence[BaseMessage]) -> bool:
    """Return whether a reply repeats its speaker's last message, and nothing new was said since."""
    if is_short(text):
        return False
    speeches = _iterate_speeches(log)
    newest = own = next(speeches, None)
    heard = list[BaseMessage]()
    while own is not None and own[1].speaker != speaker.name:
        heard.append(own[0])
        own = next(speeches, None)
    if newest is None or own is None or not is_equal(own[0].text, text):
        return False
    # The same answer to another move of a game is no repetition. A first message answers none.
    earlier = [one for one, _ in speeches]
    before = earlier[0] if earlier else None
    is_alike = own is newest or before is None or _is_alike(before, newest)
    return is_alike and not any(_is_new(one, earlier) for one in heard)


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


def _is_alike(before: BaseMessage, now: tuple[BaseMessage, MessageMetadata]) -> bool:
    """Return whether the same answer to two messages is a repetition.

    It is not if the messages are two moves of a game, or if a person asks the same again.
    """
    second, about = now
    if is_by_person(about) and is_equal(before.text, second.text):
        return False
    return is_same_move(before.text, second.text)


def _find_echoed_speaker(
    conversation: Conversation, speaker: Speaker, own: str, log: Sequence[BaseMessage]
) -> str | None:
    """Return the speaker whose message a reply echoes, or None.

    Only messages since the speaker's own last message count.
    """
    if not conversation.end_chat.guards.echo:
        return None
    first = _take_first_words(own)
    for place in reversed(range(len(log))):
        about = metadata(log[place])
        if not isinstance(about, Speech) or about.source in DATA:
            continue
        if about.speaker is None or about.speaker == speaker.name:
            return None
        if about.audience is not None and speaker.name not in about.audience:
            continue
        other, said = conversation.speaker(about.speaker), str(log[place].text)
        said = said if other.format is None else own_words(other, said, about.parsed)
        # The cheap check comes first: most messages begin with other words.
        if _take_first_words(said) != first:
            continue
        if is_echo(own, said):
            return (
                None if _is_asked_to_repeat(conversation, speaker, log[:place]) else about.speaker
            )
    return None


def _take_first_words(text: str) -> list[str]:
    """Return the first two words of a text, case-folded."""
    found: list[str] = _WORD.findall(text[:_FIRST].casefold(), 0, _FIRST)
    return found[:2]


def _is_asked_to_repeat(
    conversation: Conversation, speaker: Speaker, log: Sequence[BaseMessage]
) -> bool:
    """Return whether a speaker was asked to repeat a message, such as a vow or a lesson."""
    read = ((message.text, metadata(message)) for message in log)
    heard = (
        text for text, about in read if isinstance(about, Speech) and about.speaker != speaker.name
    )
    tasks = filter(None, (conversation.task, speaker.task))
    return any(asks_to_repeat(text) for text in (*tasks, *heard))
