"""Rows L8 and A7: code in a message is run, and its output is the reply."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolCall, ToolMessage

from duologue.graphs import (
    CodeReply,
    Conversation,
    Reason,
    Result,
    Session,
    SessionError,
    SpecError,
    build_graph,
    coder,
    converse,
    load_conversation,
    load_session,
    stream,
    user_proxy,
)
from duologue.graphs.events import CodeStarted
from duologue.nodes.testing import Line, ScriptedChatModel, ScriptExhaustedError
from duologue.tools import Hook, Turn
from support.log import fields_of, kind_of, place_of
from support.people_help import play as play_with_people
from support.sandboxes import need
from support.tables import check_rows, each_row, read_rows

MONTY = {"level": "monty"}


def python(code: str, before: str = "") -> str:
    return f"{before}\n```python\n{code}\n```".strip()


def play(
    conversation: Conversation,
    script: Sequence[Line],
    **options: Any,
) -> tuple[Result, ScriptedChatModel]:
    model = ScriptedChatModel(script=script)
    return converse(conversation, model=model, **{"store": "memory:", **options}), model


def reasons(result: Result) -> tuple[Reason, ...]:
    assert result.outcome is not None
    return result.outcome.reasons


def outputs(result: Result, name: str = "Executor") -> list[str]:
    return [text for speaker, text in result.transcript if speaker == name]


def interrupt(spec: Conversation, code: str, store: str) -> None:
    """Run a session up to the output of its first code."""
    model = ScriptedChatModel(script=[python(code)])
    with pytest.raises(ScriptExhaustedError):
        converse(spec, model=model, store=store, session="s")


def resume(session: str, code: str, store: str) -> list[str]:
    """Resume a session, and return the outputs of its code."""
    model = ScriptedChatModel(script=[python(code), "Done."])
    return outputs(Session(session, store=store).resume(model=model))


def ran(output: str, code: int = 0) -> str:
    return f"Exit code: {code} ({'it failed' if code else 'it succeeded'})\nOutput:\n{output}"


# L8: Lagent's coder

QUERY = (
    "Marie is thinking of a multiple of 63, while Jay is thinking of a factor of 63. They happen "
    "to be thinking of the same number. There are two possibilities for the number that each of "
    "them is thinking of, one positive and one negative. Find the product of these two numbers."
)
SOLUTION = "number = 63\nproduct = number * -number\nprint(product)"


def test_lagents_coder_writes_code_sees_what_it_gave_and_answers() -> None:
    """L8: two model calls, one execution, and an end at the message without code."""
    answer = "The product is -3969."
    result, model = play(coder(QUERY, sandbox=MONTY), [python(SOLUTION, "Let me see."), answer])
    assert result.transcript == [
        ("Coder", python(SOLUTION, "Let me see.")),
        ("Executor", ran("-3969")),
        ("Coder", answer),
    ]
    assert reasons(result) == (Reason.NO_CODE_BLOCK,)
    assert result.outcome is not None
    assert result.outcome.by == "Coder"
    assert result.outcome.total.calls == 2
    heard = model.calls[1].prompt
    assert [message["role"] for message in heard] == ["system", "user", "assistant", "user"]
    assert heard[-1]["content"] == ran("-3969")


@pytest.mark.parametrize("most", [1, 3])
def test_after_the_executions_the_agent_has_the_last_word_and_its_code_is_not_run(
    most: int,
) -> None:
    """L8: the agent speaks last; Lagent returns the executor's message here."""
    script = [python(f"print({number})") for number in range(most + 1)]
    result, model = play(coder("Count.", sandbox=MONTY, executions=most), script)
    assert len(model.calls) == most + 1
    assert outputs(result) == [ran(str(number)) for number in range(most)]
    assert result.transcript[-1] == ("Coder", script[-1])
    assert reasons(result) == (Reason.MAX_MESSAGES,)


def test_variables_are_kept_and_a_failure_is_the_agents_to_mend() -> None:
    """L8, A7: variables are kept between runs, and the agent corrects its failed code."""
    script = [
        python("secret = 21"),
        python("print(secret / 0)"),
        python("print(secret * 2)"),
        "42.",
    ]
    result, _ = play(coder("Double it.", sandbox=MONTY), script)
    first, second, third = outputs(result)
    assert first == ran("The code ran and printed nothing.")
    assert second.startswith("Exit code: 1 (it failed)\nOutput:\n")
    assert "ZeroDivisionError" in second
    assert third == ran("42")


@pytest.mark.part(1)
@pytest.mark.parametrize("level", ["monty", "auto"])
def test_two_sessions_share_nothing(level: str) -> None:
    script = [python("mine = 'a secret'"), "Done."]
    store = f"memory:two-coders-{level}"
    play(coder("Keep it.", sandbox={"level": level}), script, store=store, session="one")
    script = [python("print(mine)"), "Done."]
    result, _ = play(coder("Read it.", sandbox={"level": level}), script, store=store, session="2")
    assert "NameError" in outputs(result)[0]
    assert "a secret" not in outputs(result)[0]


def test_a_session_that_is_reset_has_new_variables() -> None:
    spec = coder("Keep it.", sandbox=MONTY)
    options = {"store": "memory:reset-coder", "session": "s"}
    play(spec, [python("mine = 1"), "Done."], **options)
    result, _ = play(spec, [python("print(mine)"), "Done."], reset=True, **options)
    assert "NameError" in outputs(result)[0]


def test_variables_survive_a_resume_elsewhere() -> None:
    """Monty's variables are in the checkpoint, so that another process has them, too."""
    store = "memory:resumed-coder"
    interrupt(coder("Go on.", sandbox=MONTY), "kept = [1, 2]", store)
    found = resume("s", "print(sum(kept))", store)
    assert found == [ran("The code ran and printed nothing."), ran("3")]


def test_a_fork_goes_on_with_the_variables_of_that_moment() -> None:
    store = "memory:forked-coder"
    spec = coder("Go on.", sandbox=MONTY)
    script = [python("kept = 1"), python("kept = 2"), "Done."]
    result, _ = play(spec, script, store=store, session="s")
    first_output = next(
        place_of(message)
        for message in result.messages
        if fields_of(message).speaker == "Executor" and kind_of(message) == "speech"
    )
    Session("s", store=store).fork(at=first_output, into="f")
    assert resume("f", "print(kept)", store)[-1] == ran("1")


def test_the_host_is_named_in_the_outcome_and_refused_in_a_served_graph() -> None:
    spec = coder("Count.", sandbox={"level": "host"})
    result, _ = play(spec, [python("print(1)"), "Done."])
    assert outputs(result) == [ran("1")]
    assert result.outcome is not None
    assert "without a sandbox" in result.outcome.warnings[0]
    model = ScriptedChatModel(script=[])
    graph = build_graph(model=model)
    with pytest.raises(SpecError, match=r"sandbox.level: 'host' is not allowed here"):
        asyncio.run(graph.ainvoke({"conversation": spec.stored()}))
    assert model.calls == []


# A7: AutoGen's user proxy


def proxied(*replies: object, **fields: object) -> Conversation:
    """Return AutoGen's pair: an assistant, and a proxy that runs its code."""
    given: dict[str, object] = {
        "task": "What date is today? Which stock has gained the most this year?",
        "speakers": [
            {"name": "user_proxy", "replies": replies},
            {"name": "assistant"},
        ],
        "opening": {"first_speaker": "assistant"},
        "sandbox": MONTY,
        "end_chat": {"max_iterations": 3, "when": {"kind": "done_token", "token": "TERMINATE"}},
    }
    return load_conversation(given | fields)


DEFAULT = {"kind": "text", "text": "Go on, or say TERMINATE alone."}


def test_blocks_run_in_order_and_stop_at_the_first_failure() -> None:
    """A7: a failure skips the later blocks."""
    text = "\n".join([python("print('one')"), python("1/0"), python("print('three')")])
    result, _ = play(proxied("code", DEFAULT), [text, "TERMINATE"])
    [said] = outputs(result, "user_proxy")
    assert said.startswith("Exit code: 1 (it failed)\nOutput:\none\n")
    assert "ZeroDivisionError" in said
    assert "three" not in said
    assert said.endswith("1 more block was not run because of this failure.")
    [parsed] = result.parsed("user_proxy")
    assert isinstance(parsed, dict)
    assert parsed["exit_code"] == 1


def test_only_the_newest_message_is_run() -> None:
    """A7: among three speakers, the code of the message before the newest is not run."""
    conversation = proxied(
        speakers=[
            {"name": "Ann"},
            {"name": "Ben"},
            {"name": "proxy", "replies": ["code", DEFAULT]},
        ],
        opening={},
        end_chat={"max_iterations": 1},
    )
    result, _ = play(conversation, [python("print(1)"), "No code of mine."])
    assert outputs(result, "proxy") == [DEFAULT["text"]]
    result, _ = play(conversation, ["Nothing.", python("print(2)")])
    assert outputs(result, "proxy") == [ran("2")]


@each_row("what_can_not_be_run_is_an_error", "block", "words")
def test_what_can_not_be_run_is_an_error(block: str, words: str) -> None:
    """A7: an unknown language, unlabelled other code, and a missing shell are errors."""
    result, _ = play(proxied("code"), [block, "TERMINATE"])
    [said] = outputs(result, "user_proxy")
    assert said.startswith("Exit code: 1 (it failed)")
    assert words in said


def test_a_termination_word_beside_code_waits_until_the_code_has_run() -> None:
    """A7: a termination word next to code ends the conversation after the code's output."""
    result, model = play(proxied("code"), [python("print(6 * 7)") + "\nTERMINATE"])
    assert result.transcript[-1] == ("user_proxy", ran("42"))
    assert reasons(result)[0] is Reason.DONE_TOKEN
    assert len(model.calls) == 1


def test_a_termination_word_beside_code_that_nobody_runs_ends_it_at_once() -> None:
    """A7: a termination word next to code that nobody runs ends the conversation directly."""
    at_once = {"when": {"kind": "done_token", "token": "TERMINATE"}, "allow_unanswered_end": True}
    spec = proxied(DEFAULT, end_chat=at_once)
    result, _ = play(spec, [python("print(6 * 7)") + "\nTERMINATE"])
    assert [name for name, _ in result.transcript] == ["assistant"]


def test_a_proxy_that_has_a_model_too_is_asked_where_there_is_no_code() -> None:
    """A2, A7: the proxy's model sees the code's output as its own message, without a tool call."""
    script: list[Line] = [python("print(1)"), "No code.", "What then?", "TERMINATE"]
    result, model = play(proxied("code", "model"), script)
    assert outputs(result, "user_proxy") == [ran("1"), "What then?"]
    own = model.calls[2].prompt
    assert [message["role"] for message in own[1:]] == ["user", "assistant", "user"]
    assert not any("tool_calls" in message for message in own)


def test_the_same_output_again_and_again_ends_nothing() -> None:
    """The output of code is not the speaker's choice, so guards do not count it."""
    script = [python(f"print('the same long line of output')  # {n}") for n in range(4)]
    result, _ = play(coder("Count.", sandbox=MONTY), script)
    assert reasons(result) == (Reason.MAX_MESSAGES,)


def test_hooks_see_code_and_what_it_gave() -> None:
    """L7: hooks run before and after an action, and after the speaker."""
    seen: list[Any] = []

    def double(turn: Turn, call: ToolCall) -> ToolCall:
        seen.append((call["name"], call["args"]))
        code = call["args"]["code"].replace("1", "2")
        return ToolCall(name=call["name"], args={"code": code}, id=call["id"])

    def shout(turn: Turn, call: ToolCall, result: ToolMessage) -> ToolMessage:
        return ToolMessage(result.text.strip() + "!", tool_call_id="")

    def sign(turn: Turn, reply: AIMessage) -> AIMessage:
        return AIMessage(f"{reply.text} (signed)")

    hook = Hook(before_tool=double, after_tool=shout, after_speaker=sign)
    proxy = {"name": "user_proxy", "replies": ["code"], "hooks": ["all"]}
    conversation = proxied(speakers=[proxy, {"name": "assistant"}])
    result, _ = play(conversation, [python("print(1)"), "TERMINATE"], hooks={"all": hook})
    assert seen == [("python", {"code": "print(1)"})]
    assert outputs(result, "user_proxy") == [f"{ran('2!')} (signed)"]


def test_the_log_keeps_the_code_that_ran_for_the_record_alone() -> None:
    result, _ = play(coder("Count.", sandbox=MONTY), [python("print(1)"), "Done."])
    kinds = [kind_of(message) for message in result.messages]
    assert kinds[1:] == ["speech", "code", "unheard_result", "speech", "speech"]
    for name in ("Coder", "Executor"):
        view = result.viewpoint(name)
        assert not any(isinstance(message, ToolMessage) for message in view)
        assert all(not getattr(message, "tool_calls", None) for message in view)


def test_that_code_runs_is_one_event_and_what_it_gave_the_next_message() -> None:
    model = ScriptedChatModel(script=[python("print(1)"), "Done."])
    events = list(stream(coder("Count.", sandbox=MONTY), model=model, store="memory:"))
    told = [event for event in events if event.event in ("code", "message")]
    assert [event.event for event in told] == ["message", "code", "message", "message"]
    started = told[1]
    assert isinstance(started, CodeStarted)
    assert started.speaker == "Executor"
    assert [(block.language, block.code) for block in started.blocks] == [("python", "print(1)")]


def test_an_export_shows_what_code_gave_once() -> None:
    play(coder("Count.", sandbox=MONTY), [python("print('this')"), "Done."], **KEPT)
    page = Session("s", store=KEPT["store"]).export(format="markdown")
    assert page.count("> this") == 1
    assert "exit_code" not in page


KEPT: dict[str, Any] = {"store": "memory:exported-coder", "session": "s"}


def test_a_session_that_is_dumped_and_loaded_has_its_variables() -> None:
    """The variables are copied to another store, and the original session keeps its own."""
    here, there = "memory:dumped-coder", "memory:loaded-coder"
    interrupt(coder("Go on.", sandbox=MONTY), "kept = 1", here)
    load_session(Session("s", store=here).dump(), store=there)
    for store in (there, here):
        assert resume("s", "kept += 1\nprint(kept)", store)[-1] == ran("2")


def test_a_fork_has_an_interpreter_of_its_own() -> None:
    """The fork starts without variables and gets a note; the original session keeps its own."""
    asyncio.run(need("bubblewrap"))
    store = "memory:forked-bubblewrap"
    interrupt(coder("Go on.", sandbox={"level": "bubblewrap"}), "kept = 1", store)
    Session("s", store=store).fork(into="f")
    told = resume("f", "kept = 2\nprint(kept)", store)[-1]
    assert "the interpreter was restarted" in told
    assert told.endswith("\n2")
    assert resume("s", "print(kept)", store)[-1] == ran("1")


def test_what_code_prints_is_data_and_ends_nothing() -> None:
    """A printed done token belongs to no speaker, and printed code is not run."""
    printed = "print('TERMINATE\\n' + '`' * 3 + 'python\\nprint(1)\\n' + '`' * 3)"
    conversation = proxied(
        speakers=[
            {"name": "assistant"},
            {"name": "user_proxy", "replies": ["code", DEFAULT]},
            {"name": "other_proxy", "replies": ["code", DEFAULT]},
        ],
        opening={},
        end_chat={"max_iterations": 1, "when": {"kind": "done_token", "token": "TERMINATE"}},
    )
    result, _ = play(conversation, [python(printed)])
    assert "TERMINATE" in outputs(result, "user_proxy")[0].splitlines()
    assert outputs(result, "other_proxy") == [DEFAULT["text"]]
    assert reasons(result) == (Reason.MAX_ITERATIONS,)


def test_a_hook_that_takes_the_code_away_is_named() -> None:
    """L7: if a hook removes the code, the error names the hook."""

    def empty(turn: Turn, call: ToolCall) -> ToolCall:
        return ToolCall(name=call["name"], args={}, id=call["id"])

    proxy = {"name": "user_proxy", "replies": ["code"], "hooks": ["empty"]}
    conversation = proxied(speakers=[proxy, {"name": "assistant"}])
    with pytest.raises(
        SpecError, match="a before_tool hook of 'user_proxy' set the argument `code`"
    ):
        play(conversation, [python("print(1)")], hooks={"empty": Hook(before_tool=empty)})


# R9: a coder's fence that is not marked with a language it can run is text.


def fenced(code: str, label: str = "", fence: str = "```") -> str:
    return f"The answer:\n{fence}{label}\n{code}\n{fence}"


def test_a_last_word_with_another_fence_ends_it() -> None:
    """R9: a fence in another language is text, so the coder ends."""

    def check(text: str) -> None:
        played = play_with_people(
            coder("Count.", sandbox=MONTY), ["```python\nprint(6 * 7)\n```", text]
        )
        assert [name for name, _ in played.transcript] == ["Coder", "Executor", "Coder"]
        assert played.outcome.reason is Reason.NO_CODE_BLOCK

    check_rows([(text,) for text in read_rows(__file__, "fences_that_are_text")], check)


def test_marked_code_runs_beside_other_fences() -> None:
    """R9: only the marked code runs."""

    def check(label: str) -> None:
        text = f"{fenced('x = ?', 'text')}\n{fenced('print(6 * 7)', label)}\n{fenced('2')}"
        played = play_with_people(coder("Count.", sandbox=MONTY), [text, "It is 42."])
        assert played.transcript[1] == ("Executor", "Exit code: 0 (it succeeded)\nOutput:\n42")

    labels = ("python", "Py", "python3", "{.python}", "python:main.py")
    check_rows([(label,) for label in labels], check)


def test_a_shell_is_run_where_the_sandbox_has_one() -> None:
    """R9: shell code needs a sandbox with a shell."""

    def check(level: str, label: str, told: list[str]) -> None:
        script = [fenced("echo Hi", label), "Done."][: len(told) + 1]
        result, _ = play(coder("Count.", sandbox={"level": level}), script)
        assert outputs(result) == told

    check_rows([("host", "bash", [ran("Hi")]), ("monty", "bash", []), ("host", "", [])], check)


def test_a_user_proxy_goes_by_its_own_rule() -> None:
    """R9, A7: unlabelled code is recognized by its content, and another language is an error."""
    proxy = user_proxy("Count.", human_input_mode="NEVER", sandbox=MONTY)
    played = play_with_people(proxy, [fenced("print(6 * 7)"), fenced("42", "text"), "TERMINATE"])
    told = [text for name, text in played.transcript if name == "User"]
    assert "Output:\n42" in told[1]
    assert "unknown language 'text'" in told[2]


def before() -> Conversation:
    """Return a coder of the version without the choice of fences."""
    now = coder("Count.", sandbox=MONTY)
    old = now.speakers[0].model_copy(update={"replies": (CodeReply(),)})
    dumped = [old.model_dump(mode="json"), now.speakers[1].model_dump(mode="json")]
    return Conversation.model_validate({**now.stored(), "speakers": dumped})


def test_an_older_session_goes_on_by_its_rule_by_the_same_python() -> None:
    """R9: an older session keeps its rule, by which all fences run."""
    store = "memory:older-coder"
    with pytest.raises(RuntimeError):
        play_with_people(before(), [fenced("print(1)"), RuntimeError("stopped")], store=store)
    model = ScriptedChatModel(script=[fenced("print(2)"), "It is 2."])
    now = coder("Count.", sandbox=MONTY)
    result = converse(now, session="s", store=store, model=model)
    assert [text for name, text in result.transcript if name == "Executor"] == [
        "Exit code: 0 (it succeeded)\nOutput:\n1",
        "Exit code: 0 (it succeeded)\nOutput:\n2",
    ]
    other = coder("Count.", sandbox=MONTY, executions=2)
    with pytest.raises(SessionError, match="differs"):
        converse(other, session="s", store=store, model=model)


def test_the_choice_is_stored() -> None:
    """R9: the spec contains the choice."""
    store = "memory:newer-coder"
    with pytest.raises(RuntimeError):
        play_with_people(coder("Count.", sandbox=MONTY), [RuntimeError("stopped")], store=store)
    result = Session("s", store=store).resume(model=ScriptedChatModel(script=[fenced("print(1)")]))
    assert result.outcome is not None
    assert result.outcome.reason is Reason.NO_CODE_BLOCK
    assert coder("Count.").stored()["speakers"][0]["replies"] == [
        {"kind": "code", "fences": "marked"}
    ]
