"""G5 and G6 on the command line without a terminal: pipes, JSON, answers from elsewhere."""

import asyncio
import json
import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from duologue.graphs import Question, Session, aconverse, chat
from duologue.nodes.testing import Reply
from duologue.nodes.testing.server import ScriptedServer
from support.cli_help import ANSWER, FIRST, SHORT, Serve, duologue, meanwhile, serving, ways_on
from support.installed import install_package
from support.tables import read_rows

CHAT = ["chat", "--session", "c"]


def waits() -> str:
    """Return the lines about a session "c" that waits for a message."""
    return (
        f"Session c waits for an answer. User, it is your turn. Enter exit to leave.\n{ways_on()}"
    )


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Yield a function that offers tools which ask a person; the agent calls one of them."""
    with ExitStack() as servers:

        def offered(name: str) -> None:
            install_package(tmp_path)
            monkeypatch.syspath_prepend(tmp_path)
            args = {"what": "card"} if name == "pick" else {"to": "ann", "body": "Hi."}
            call = Reply(tool_calls=[{"name": name, "args": args, "id": "1"}])
            servers.enter_context(serving(monkeypatch, call, "Done."))

        yield offered


def test_a_chat_is_read_from_a_pipe_until_exit(server: ScriptedServer) -> None:
    """G5, G6: each line of the pipe is a message."""
    ran = duologue(*CHAT, lines="What is it?\n\nThanks.\n EXIT \nnot read\n")
    assert ran.exit_code == 0
    # There is no prompt, and an empty line is reported and skipped if an answer is required.
    assert ran.stderr == "A message is required here. Enter exit to leave.\n"
    assert ran.stdout.startswith(read_rows(__file__, "chat_from_a_pipe"))


def test_the_end_of_the_input_leaves_the_session_waiting(server: ScriptedServer) -> None:
    """G5: at the end of the input, the question stays open."""
    ran = duologue("chat", "Hello.", "--session", "c")
    assert (ran.exit_code, ran.stderr) == (5, waits())
    assert ran.stdout.endswith("\nUser:\nHello.\n\nAssistant:\nIt is 42.\n")
    assert duologue("sessions").stdout.split()[:2] == ["c", "waiting"]
    assert duologue("show", "c").stdout.endswith(
        f"\n\nWaits for an answer. User, it is your turn. Enter exit to leave.\n{ways_on()}"
    )
    shown = json.loads(duologue("show", "c", "--json").stdout.splitlines()[-1])
    assert (shown["event"], shown["question"]["kind"]) == ("question", "message")
    listed = json.loads(duologue("sessions", "--json").stdout)
    assert listed["status"] == "waiting"
    ran = duologue("resume", "c", lines="Thanks.\n")
    assert (ran.exit_code, ran.stderr) == (5, waits())
    assert "Hello." not in ran.stdout.partition("continues.")[2]
    ran = duologue("resume", "c", lines="exit\n")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert len(server.calls) == 2


def test_with_json_nobody_is_asked_and_answers_come_as_commands(server: ScriptedServer) -> None:
    ran = duologue(*CHAT, "--json", lines="not read\n")
    assert (ran.exit_code, ran.stderr) == (5, waits())
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [event["event"] for event in events] == ["session", "question"]
    question = events[-1]["question"]
    ran = duologue("answer", "c", "What is it?", "--question", question["id"], "--json")
    assert (ran.exit_code, ran.stderr) == (5, waits())
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    said = [event["text"] for event in events if event["event"] == "message"]
    assert said == ["What is it?", "It is 42."]
    assert events[-1]["event"] == "question"
    ran = duologue("answer", "c", "exit", "--json")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert json.loads(ran.stdout.splitlines()[-1])["reason"] == "quit"


def test_an_answer_goes_on_and_asks_further(server: ScriptedServer) -> None:
    duologue(*CHAT)
    ran = duologue("answer", "c", "What is it?", lines="Thanks.\nexit\n")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert [text for _, text in Session("c").state().transcript] == [
        "What is it?",
        "It is 42.",
        "Thanks.",
        "Bye.",
    ]


@pytest.mark.exhaustive
@pytest.mark.usefixtures("impatient")
def test_an_answer_is_refused_while_another_run_asks(server: ScriptedServer) -> None:
    asks, answered = threading.Event(), threading.Event()

    def answer(_: Question) -> None:
        asks.set()
        answered.wait(60)

    with meanwhile(lambda: asyncio.run(aconverse(chat(), session="c", answer=answer))):
        assert asks.wait(60)
        ran = duologue("answer", "c", "Hello.")
        answered.set()
    assert (ran.exit_code, ran.stdout) == (4, "")
    assert "busy" in ran.stderr
    ran = duologue("answer", "c", "Hello.")
    assert (ran.exit_code, ran.stderr) == (5, waits())
    assert "It is 42." in ran.stdout


@pytest.mark.part(1)
@pytest.mark.parametrize(("lines", "decision"), read_rows(__file__, "decisions"))
def test_a_call_is_decided_on_by_letters_and_words(
    lines: str, decision: object, offer: Callable[[str], None]
) -> None:
    offer("send")
    ran = duologue("chat", "Go.", "--session", "c", "--tool", "send", lines=lines)
    assert ran.exit_code == 5
    assert f"(It returns: { ({'decisions': [decision]}) })" in ran.stdout


def test_a_call_that_waits_is_told_with_a_command_that_lets_it_run(
    offer: Callable[[str], None],
) -> None:
    offer("send")
    ran = duologue("chat", "Go.", "--session", "c", "--tool", "send", lines="e\n")
    assert ran.exit_code == 5
    assert ran.stderr == (
        "Session c waits for an answer. Assistant wants to call send with "
        '{"to": "ann", "body": "Hi."}.\n'
        + ways_on(sample="""'{"decisions": [{"type": "approve"}]}'""")
    )
    ran = duologue("answer", "c", "yes, do")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr.startswith("Error: the answer is not JSON (")
    assert ran.stderr.endswith('JSON, for example, {"decisions": [{"type": "approve"}]}\n')
    ran = duologue("answer", "c", "Yes")
    assert "(It returns: {'decisions': [{'type': 'approve'}]})" in ran.stdout


@pytest.mark.exhaustive
def test_a_command_that_was_copied_answers_the_question_that_it_was_shown_with(
    offer: Callable[[str], None],
) -> None:
    """A copied command does not answer a later question."""
    offer("send")
    approve = '{"decisions": [{"type": "approve"}]}'
    duologue("chat", "Go.", "--session", "c", "--tool", "send", lines="e\n")
    (shown,) = [one for one in duologue("show", "c").stdout.splitlines() if "--question" in one]
    copied = shlex.split(shown.removeprefix("Answer it with: duologue "))
    assert copied[-1] == approve
    duologue("answer", "c", approve)
    after = Session("c").state()
    assert after.pending
    ran = duologue(*copied)
    assert (ran.exit_code, ran.stdout) == (4, "")
    assert "the question was already answered or withdrawn" in ran.stderr
    assert Session("c").state() == after


@pytest.mark.part(1)
@pytest.mark.parametrize(
    ("text", "picked"),
    [("ace", "ace"), ('{"suit": 1}', "{'suit': 1}"), ('""', ""), ("12", "12")],
)
@pytest.mark.parametrize("by_command", [False, True])
def test_a_tools_own_question_takes_json_or_text(
    text: str, picked: str, by_command: bool, offer: Callable[[str], None]
) -> None:
    offer("pick")
    chat = ["chat", "Go.", "--session", "c", "--tool", "pick"]
    ran = duologue(*chat, lines="" if by_command else f"\n{text}\n")
    if by_command:
        assert 'waits for an answer. A tool asks: {"what": "card"}' not in ran.stderr
        assert 'waits for an answer. A tool asks: {"pick": "card"}' in ran.stderr
        ran = duologue("answer", "c", text)
    assert ran.exit_code == 5
    assert f"(It returns: picked {picked}".rstrip() in ran.stdout


def test_a_file_with_a_person_is_run_and_says_what_nothing_does(
    serve: Serve, tmp_path: Path
) -> None:
    """A5: the person is asked at a termination message if nothing else ends it."""
    (tmp_path / "sums.toml").write_text(
        'kind = "user_proxy"\nmessage = "What is 2 + 2?"\nhuman_input_mode = "TERMINATE"\n'
    )
    server = serve("4. TERMINATE", "8. TERMINATE", "4. TERMINATE")
    ran = duologue("run", "sums.toml", "--session", "s")
    assert ran.exit_code == 5
    assert (
        "Write a message to continue. Empty: the conversation ends. Enter exit to leave."
        in ran.stderr
    )
    ran = duologue("resume", "s", lines="And 4 + 4?\n\n")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert "\nUser:\nAnd 4 + 4?\n\nAssistant:\n8. TERMINATE\n" in ran.stdout
    assert Session("s").state().outcome is not None
    duologue("run", "sums.toml", "--session", "s", "--reset")
    assert duologue("answer", "s", "").exit_code == 0
    assert len(server.calls) == 3


def test_options_of_a_chat_reach_its_conversation(server: ScriptedServer) -> None:
    ran = duologue(
        *["chat", "Hello.", "--session", "c", "--tool", "clock", "--approve", "calculator"],
        *["--prompt", "Be a pirate.", "--max-iterations", "1", "--temperature", "0.5"],
        *["--seed", "7"],
    )
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert "the round cap was reached" in ran.stdout
    body = server.calls[0].body
    assert "Be a pirate." in server.calls[0].prompt[0]["content"]
    assert (body["temperature"], body["seed"]) == (0.5, 7)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["clock", "calculator"]
    ran = duologue("chat", "Hello.", "--session", "c", "--reset")
    assert ran.exit_code == 5


def test_an_interrupted_run_without_people_is_no_waiting_one(serve: Serve) -> None:
    serve(FIRST, ANSWER, Reply(error=400))
    assert duologue(*SHORT).exit_code == 3
    assert duologue("show", "g").stdout.endswith(
        "\n\nNot finished.\nContinue with: duologue resume g\n"
    )
