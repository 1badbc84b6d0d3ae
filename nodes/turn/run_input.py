"""The input of a run, and its meaning for a session: the rules of the chat protocol.

If a person takes part, the user's message in `messages` is that person's next turn. Otherwise it is
the task. The messages are in the state already, under their sender's ids. A message sent as a
speaker counts as its turn, and reopens a conversation that has ended.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import dropwhile, takewhile
from typing import Any, Final, NamedTuple, Self

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage

from ...graphs.common.content import Block, Content, arrange_blocks, files_of, join_content, text_of
from ...graphs.common.content_input import keep_inline, read_content
from ...graphs.common.errors import SessionError, SpecError, list_names
from ...graphs.common.validation import validate
from ...graphs.conversation.conversation import Conversation, Form, restore_conversation
from ...graphs.conversation.questions import is_exit
from ...graphs.conversation.usage import read_usage
from ...graphs.ends.end import Facts
from ...graphs.kinds.load import load_conversation
from ...graphs.log.messages import (
    KEY,
    PLACE,
    make_message,
    make_tool_message,
    metadata,
    newest_calls,
    place_of,
    stored_form,
    stored_metadata,
)
from ...graphs.log.metadata import (
    INPUT,
    NOBODY,
    CallOutcome,
    CodeCalls,
    EarlierEnd,
    Failure,
    InputMessage,
    Instruction,
    RememberedMessage,
    Source,
    Speech,
    Stage,
    ToolResult,
)
from ...graphs.log.state import State, log_of, take_back, update_of
from ...graphs.rules.log_counter import counter_of, facts_of
from ...graphs.rules.outcome import Outcome, outcome
from ...graphs.rules.position import BETWEEN_TURNS, TURN_ENDS, Phase, Position
from ...graphs.rules.questions import needing_approval
from ...graphs.rules.transitions import (
    Decision,
    Node,
    decide,
    position_after_removals,
    record_reopening,
    record_turn,
)
from ...graphs.rules.turns import Dialogue, NextTurn
from ...graphs.speakers.speaker import Speaker
from .node_context import instruct_before_turn


class RunInput(NamedTuple):
    """The messages in a run's input."""

    new: Sequence[AnyMessage]
    """The messages that are new to the session, oldest first."""
    known: list[AnyMessage]
    """The messages that the session knows."""
    last: Sequence[AnyMessage]
    """The user's newest message, with the user messages directly before it."""
    content: Content | None
    """The content of `last`. None if the user sends nothing new."""

    @classmethod
    def read(cls, state: Mapping[str, Any]) -> Self:
        """Read the messages in a run's input.

        Raises:
            SpecError: The user's newest message is blank, or a file in it is not accepted.
        """
        messages = state.get("messages") or []
        new = (
            _list_new_messages(messages, state.get("unspoken") or [])
            if state.get("spec")
            else messages
        )
        ids = {one.id for one in new}
        known = [one for one in messages if one.id not in ids]
        behind = dropwhile(lambda one: not isinstance(one, HumanMessage), reversed(new))
        last = [*takewhile(lambda one: isinstance(one, HumanMessage), behind)][::-1]
        if not last:
            return cls(new, known, (), None)
        newest = read_content(last[-1].content, "messages.content")
        if not text_of(newest).strip():
            raise SpecError("messages: the user's newest message must not be empty")
        before = map(_read_earlier_content, last[:-1])
        said = (one for one in before if text_of(one).strip() and not is_exit(one))
        return cls(new, known, last, reduce(join_content, [*said, newest]))

    @property
    def text(self) -> str | None:
        """The text of `last`. None if the user sends nothing new."""
        return None if self.content is None else text_of(self.content)

    def find_sayer(self, conversation: Conversation) -> str | None:
        """Return the speaker that the user's message belongs to. None if no speaker is a person.

        Raises:
            SpecError: There are several people, and the message names none of them.
        """
        people = conversation.people
        named = self.last[-1].name if self.last else None
        if len(people) > 1 and named not in people:
            raise SpecError(
                f"messages: people speak for {list_names(people)} in this conversation; set "
                "the message's name to one of them"
            )
        return (named if named in people else people[0]) if people else None

    def keep_messages(self, sayer: str | None = None) -> list[AnyMessage]:
        """Return the writes that keep the messages in the state without adding them to the log.

        Args:
            sayer: The speaker who says the user's newest message in its next turn, if there is one.
        """
        writes: list[AnyMessage] = []
        said = {one.id for one in self.last} if sayer else set()
        for message in self.new:
            is_last = bool(self.last) and message is self.last[-1]
            if KEY in message.additional_kwargs or (message.id in said and not is_last):
                # The message belongs to another conversation's log, or is joined to the newest one.
                writes.append(take_back(str(message.id)))
            if message.id not in said:
                writes.append(mark_run_input(message))
            elif is_last:
                writes.append(
                    mark_run_input(message, sayer).model_copy(update={"content": self.content})
                )
        return writes

    def make_memories(self, conversation: Conversation, sayer: str) -> list[AnyMessage]:
        """Return messages from before this conversation as log messages that speakers remember."""
        others = [name for name in conversation.names if name != sayer]
        lines: list[AnyMessage] = []
        for message in self.new:
            if self.last and message is self.last[0]:
                break
            content = _read_earlier_content(message)
            is_blank = not text_of(content).strip()
            if is_blank or not isinstance(message, HumanMessage | AIMessage):
                continue
            name = message.name if message.name in others else others[0]
            if isinstance(message, HumanMessage):
                name = sayer
            about = RememberedMessage(speaker=name, audience=conversation.names)
            lines.append(make_message(len(lines), content, about))
        return lines


def _read_earlier_content(message: BaseMessage) -> Content:
    """Return the text and the inline files of a message that is not the user's newest.

    Other parts, such as an address, are left out: an earlier run has refused them.
    """
    if isinstance(message.content, str):
        return message.content
    return arrange_blocks([str(message.text), *files_of(keep_inline(message.content))])


def has_unread_message(state: Mapping[str, Any]) -> bool:
    """Return whether the user's newest message is new to a session and no run has read it yet.

    Raises:
        SpecError: This message is blank, or a file in it is not accepted.
    """
    last = RunInput.read(state).last if state.get("spec") else ()
    return bool(last) and not stored_metadata(last[-1])


def mark_run_input(message: AnyMessage, sayer: str | None = None) -> AnyMessage:
    """Mark a message as outside the log. If a speaker is named, it will say the message."""
    about = InputMessage(speaker=sayer)
    extra = {name: one for name, one in message.additional_kwargs.items() if name != PLACE}
    extra[KEY] = stored_form(about)
    return message.model_copy(update={"additional_kwargs": extra})


def _list_new_messages(
    messages: Sequence[AnyMessage], unspoken: Sequence[BaseMessage]
) -> Sequence[AnyMessage]:
    """Return the messages after the session's own last message, without earlier inputs."""
    taken = {one.additional_kwargs.get(PLACE) for one in unspoken}
    end = 0
    for number, message in enumerate(messages):
        place = message.additional_kwargs.get(PLACE)
        if not isinstance(place, int):
            continue
        if place in taken:
            # The message belongs to another conversation's log, and so do those that follow it.
            break
        taken.add(place)
        end = number + 1
    behind = ((one, stored_metadata(one)) for one in messages[end:])
    return [one for one, about in behind if about.get("kind") != INPUT or about.get("speaker")]


class RequestedConversation(NamedTuple):
    """The conversation that a run requests."""

    conversation: Conversation | None
    filled: Mapping[str, Any]
    """The values of the short form's fields that the user's message sets, by field name."""
    is_task: bool
    """Whether the user's message is the task."""


def read_requested_conversation(
    state: State,
    form: type[Form] | None,
    run_input: RunInput,
    *,
    is_new: bool,
    served: Conversation | None = None,
) -> RequestedConversation:
    """Read the conversation that a run requests.

    Args:
        state: The state, including the input.
        form: The form of the graph, if it has one.
        run_input: The messages of the input.
        is_new: Whether a message begins a new conversation on this thread, with a new task.
        served: The graph's own conversation. A run can set only its task. None if the graph has
            no conversation.
    """
    text = run_input.text
    # In Python the state can have a Conversation object.
    whole: object = served or state.get("conversation")
    if whole:
        given = whole if isinstance(whole, Conversation) else _read(state, text)
        is_said = served is not None or is_new or not given.task or given.task == text
        is_task = text is not None and is_said and not given.people
        return RequestedConversation(
            given.model_copy(update={"task": text}) if is_task else given, {}, is_task
        )
    if form is None:
        return RequestedConversation(None, {}, is_task=False)
    fields: Mapping[str, Any] = state
    known = {name: fields[name] for name in form.model_fields if fields.get(name) is not None}
    filled: dict[str, Any] = {}
    if text is not None:
        filled = {name: one for name, one in form.beside_message.items() if name not in known}
        if form.message_field and (is_new or form.message_field not in known):
            filled[form.message_field] = text
    return RequestedConversation(
        validate(form, known | filled).conversation(), filled, is_task="task" in filled
    )


def _read(state: State, text: str | None) -> Conversation:
    """Read a whole conversation. Its task may come from the user's message, now or earlier."""
    given: object = state["conversation"]
    if not isinstance(given, Mapping):
        kind = type(given).__name__
        raise SpecError(f"conversation: expected the fields of a Conversation, not {kind}")
    read = load_conversation if "kind" in given else restore_conversation
    task = text or (state.get("spec") or {}).get("task")
    if task and not given.get("task"):
        with_task = read({**given, "task": task})
        if not with_task.people:
            return with_task
    return read({**given})


def is_new_task(run_input: RunInput, known: Conversation, state: State) -> bool:
    """Return whether the user's message is a new task for a conversation without people."""
    if run_input.text is None or known.people:
        return False
    return bool(state.get("outcome")) or run_input.text != known.task


def empty_session(state: State, run_input: RunInput) -> dict[str, Any]:
    """Return the writes that reset a session and keep its messages outside the log.

    The messages of the new input follow them.
    """
    messages: list[AnyMessage] = []
    for message in state.get("messages") or ():
        if PLACE in message.additional_kwargs:
            messages += [take_back(str(message.id)), mark_run_input(message)]
    messages += [take_back(str(message.id)) for message in run_input.new]
    unspoken = [take_back(str(message.id)) for message in state.get("unspoken") or ()]
    nothing: dict[str, Any] = {"position": {}, "outcome": {}, "usage": {}}
    nothing |= {"interpreter": {}, "decisions": {}}
    return {**nothing, "messages": messages, "unspoken": [unspoken]}


def continue_session(
    state: State, conversation: Conversation, run_input: RunInput
) -> dict[str, Any]:
    """Return the update for a session that continues, or that has ended.

    If a person is asked, or has the next turn, the message waits for that question. Otherwise it
    enters the log at once, as with `graphs.session.edits`.
    """
    sayer = run_input.find_sayer(conversation) if run_input.text else None
    position = position_after_removals(Position.model_validate(state["position"]), log_of(state))
    content, ended = run_input.content or "", bool(state.get("outcome"))
    if sayer is None or (ended and is_exit(content)):
        return {"messages": run_input.keep_messages()}
    if is_opening(conversation, position):
        if ended:
            raise SessionError("this session ended during its opening; start a new thread")
        return {"messages": run_input.keep_messages(sayer)}
    if not ended and _is_next(conversation, position, sayer):
        return {"messages": run_input.keep_messages(sayer)}
    message_id = str(run_input.last[-1].id)
    written = say_as_speaker(state, conversation, position, sayer, content, message_id)
    said = written["messages"]
    kept = [one for one in run_input.keep_messages(sayer) if one.id != message_id]
    # The results of waiting calls must directly follow the calls.
    moved = [take_back(message_id)] if len(said) > 1 else []
    return {**written, "messages": [*kept, *moved, *said]}


def _is_next(conversation: Conversation, position: Position, name: str) -> bool:
    """Return whether the next message comes from this speaker's person."""
    dialogue = Dialogue(conversation, position)
    turn = decide(dialogue)
    if turn.node is Node.TOOL_EXECUTOR:
        asked = dialogue.find_question_of_calls(turn.speaker)
        return asked is not None and asked.speaker == name
    speaks = turn.node in (Node.USER_AGENT, Node.ASSISTANT_AGENT)
    return speaks and position.phase in BETWEEN_TURNS and turn.speaker == name


def join_updates(first: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    """Join two updates. The messages of the second follow those of the first."""
    names = {"messages", "unspoken"} & first.keys() & then.keys()
    return {**first, **then, **{name: [*first[name], *then[name]] for name in names}}


_NOT_IN_THE_LOG: Final = (
    *("calls", "tokens", "cost", "calls_by", "tokens_by", "cost_by"),
    "seconds",
)
"""The facts that are not counted from the log."""


def is_opening(conversation: Conversation, position: Position) -> bool:
    """Return whether the private or opening prompts are still being answered."""
    within = position.stage in (Stage.PRIVATE, Stage.OPENING) and position.phase not in TURN_ENDS
    comes = Dialogue(conversation, position).next_turn().stage
    return within or comes in (Stage.PRIVATE, Stage.OPENING)


def say_as_speaker(
    state: State,
    conversation: Conversation,
    position: Position,
    speaker: str,
    content: Content,
    message_id: str | None = None,
) -> State:
    """Return the update of a session's state for a message that is sent as a speaker.

    A message from a client, as the input of a run, has an id.
    """
    log = log_of(state)
    position = position_after_removals(position, log)
    about = metadata(log[-1]) if log else None
    taken_back: list[AnyMessage] = []
    if about and isinstance(about, Instruction) and position.phase in TURN_ENDS:
        # The newest instruction announces a turn. It is removed if the turn was another speaker's.
        taken_back = [] if about.audience == (speaker,) else [log.pop()]
    known = len(log)
    log += _answer_dropped_calls(state, Dialogue(conversation, position, log=log), speaker)
    if ended := state.get("outcome"):
        end = EarlierEnd(audience=NOBODY, outcome=ended)
        log.append(make_message(len(log), str(Outcome.model_validate(ended)), end))
        position = record_reopening(position)
    stage = Stage.LAST_WORDS if position.owed[:1] == (speaker,) else Stage.ROUNDS
    about = Speech(
        speaker=speaker,
        audience=conversation.speaker(speaker).speaks_to,
        source=Source.HUMAN,
        stage=stage,
        from_client=message_id is not None,
    )
    log.append(make_message(len(log), content, about, id=message_id))
    facts = facts_of(conversation, log).model_copy(update=select_other_facts(position.facts))
    after = record_turn(Dialogue(conversation, position), NextTurn(speaker, stage))
    after = after.model_copy(update={"facts": facts})
    dialogue = Dialogue(conversation, after, log=log)
    following = decide(dialogue)
    gone_on = add_next_step(dialogue, following, {**state, "messages": log}, is_new=True)
    new = [*(take_back(str(one.id)) for one in taken_back), *gone_on["messages"][known:]]
    written = update_of(new, log)
    written["position"] = after.model_dump(mode="json", exclude_defaults=True)
    if ended or following.node is Node.END:
        # An empty outcome means that there is none.
        written["outcome"] = gone_on["outcome"] if following.node is Node.END else {}
    return written


def _answer_dropped_calls(state: State, dialogue: Dialogue, speaker: str) -> list[AnyMessage]:
    """Return a result for each waiting call, so that providers accept the caller's history."""
    position, log = dialogue.position, dialogue.log
    if position.phase not in (Phase.CALLED, Phase.RAN):
        return []
    called = newest_calls(log)
    if isinstance(metadata(called), CodeCalls):
        return []
    # A result that no hook has seen yet counts as well.
    came = {one.tool_call_id: one for one in log if isinstance(one, ToolMessage)}
    caller = dialogue.conversation.speaker(position.speaker or "")
    is_shown = dialogue.find_question_of_calls(caller.name) is not None
    begun = _find_begun_calls(state, caller, called, is_shown=is_shown)
    results: list[AnyMessage] = []
    for call in (*called.tool_calls, *called.invalid_tool_calls):
        call_id, files = str(call["id"]), list[Block]()
        what = "Result unknown" if call_id in begun else "Not run"
        text = f"{what}: {speaker} sent a message instead."
        failure: Failure | None = Failure.PERSON
        if (result := came.get(call_id)) is not None:
            known = metadata(result)
            text, files = result.text, files_of(result.content)
            failure = known.failure if isinstance(known, CallOutcome) else None
        number = len(log) + len(results)
        about = ToolResult(speaker=caller.name, audience=(caller.name,), failure=failure)
        results.append(make_tool_message(number, text, about, call_id, files=files))
    return results


def _find_begun_calls(
    state: State, caller: Speaker, message: AIMessage, *, is_shown: bool
) -> set[str]:
    """Return the ids of the calls of a message that may have begun to run.

    No call runs before a person has seen all of them, or has decided on those that need approval.
    """
    kept = state.get("decisions") or {}
    if kept.get("message") != place_of(message):
        kept = {}
    is_asked = bool(needing_approval(caller, message.tool_calls)) and "decisions" not in kept
    if is_asked or (is_shown and not kept):
        return set()
    decided = {call_id: one["type"] for call_id, one in (kept.get("decisions") or {}).items()}
    ids = {str(call["id"]) for call in message.tool_calls if call["name"] in caller.tools}
    return {one for one in ids if decided.get(one) not in ("reject", "respond")}


def select_other_facts(facts: Facts) -> dict[str, Any]:
    """Return the facts that are not counted from the log, by name."""
    return {name: getattr(facts, name) for name in _NOT_IN_THE_LOG}


def add_next_step(dialogue: Dialogue, following: Decision, state: State, *, is_new: bool) -> State:
    """Add the outcome if the conversation ends, or the instructions if the next turn is new."""
    if following.node is Node.END:
        tallies = counter_of(dialogue.conversation, dialogue.log).tallies
        ended = outcome(dialogue, following.reasons, read_usage(state), tallies)
        state["outcome"] = ended.model_dump(mode="json")
    elif is_new:
        state["messages"] = [*state["messages"], *instruct_before_turn(dialogue, following)]
    return state
