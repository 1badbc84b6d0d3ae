"""G5 and G6 at a terminal: typing, keys that end it, and the contents of the screen."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from duologue.graphs import Session, list_sessions
from duologue.nodes.testing import Reply
from duologue.nodes.testing.server import ScriptedServer
from support.cli_help import Serve, duologue, main_thread_gets, ways_on
from support.installed import install_package

pytest.importorskip("termios", reason="there are no such terminals")

from support.pty_help import Terminal, at_terminal, in_a_process, leaves

pytestmark = pytest.mark.live


def answers(*lines: str) -> Callable[[Terminal], None]:
    """Return a person who types these lines when asked."""

    def person(terminal: Terminal) -> None:
        for keys in lines:
            terminal.sees("User> ")
            terminal.types(keys)

    return person


def test_an_error_is_wrapped_between_words_at_a_terminal() -> None:
    code, text = at_terminal("init", "nonsense", person=lambda terminal: None)
    assert code == 2
    assert len(text.splitlines()) == 2
    assert "'blogger'" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_a_chat_at_a_terminal_shows_each_line_once_until_exit(server: ScriptedServer) -> None:
    """G5, G6: the screen of a chat shows each line once."""
    person = answers("\r", "What is it?\r", "Thx\x7fanks.\r", " Exit\r")
    code, text = at_terminal("chat", "--session", "c", person=person)
    assert code == 0
    rule = "─" * 67
    assert text.startswith(
        "Chat with Assistant\n"
        "Session c starts. Ctrl-C pauses it.\n"
        "\n"
        "User, it is your turn. Enter exit to leave.\n"
        "User> \n"
        "A message is required here. Enter exit to leave.\n"
        "User> What is it?\n"
        "\n"
        f"── Assistant {rule}\n"
        "It is 42.\n"
        "\n"
        "User> "
    )
    assert f"\n\n── Assistant {rule}\nBye.\n\nUser>  Exit\n\n╭{'─' * 78}╮\n" in text
    assert "│ Ended after 2 rounds and 4 messages: User left.   " in text
    # The key that deletes a character worked.
    assert "Thanks." in duologue("show", "c").stdout


@pytest.mark.part(1)
@pytest.mark.parametrize(
    ("sent", "code", "told"),
    [
        (signal.SIGINT, 130, "\nInterrupted.\nContinue with: duologue resume c\n"),
        (
            "\x04",
            5,
            "\nSession c waits for an answer. User, it is your turn. Enter exit to leave."
            "\n{ways_on}",
        ),
        (signal.SIGTERM, 143, "\nTerminated.\nContinue with: duologue resume c\n"),
    ],
    ids=["Ctrl-C", "Ctrl-D", "SIGTERM"],
)
def test_who_leaves_a_question_leaves_the_session_waiting(
    sent: str | signal.Signals, code: int, told: str, server: ScriptedServer
) -> None:
    """G5: when the person leaves a question, it stays open."""

    def person(terminal: Terminal) -> None:
        terminal.sees("User> ")
        leaves(terminal, sent)

    ended, text = at_terminal("chat", "Hello.", "--session", "c", person=person)
    assert ended == code
    assert text.endswith(told.format(ways_on=ways_on()))
    assert "Traceback" not in text
    assert [row.status for row in list_sessions()] == ["waiting"]
    assert duologue("resume", "c", lines="exit\n").exit_code == 0
    assert len(server.calls) == 1


def test_while_an_answer_is_waited_for_a_line_says_so_and_is_gone_with_it(serve: Serve) -> None:
    server = serve("It is 42.", hold=[0])

    def person(terminal: Terminal) -> None:
        for text in ("Waiting for Assistant… 1 s", "Waiting for Assistant… 2 s"):
            terminal.sees(text)
        server.release()
        answers("exit\r")(terminal)

    code, text = at_terminal("chat", "What is it?", "--session", "c", person=person)
    assert code == 0
    assert f"\n\n── Assistant {'─' * 67}\nIt is 42.\n\nUser, it is your turn" in text
    assert "Waiting" not in text


def test_who_comes_back_is_told_what_was_said(server: ScriptedServer) -> None:
    duologue("chat", "Hello.", "--session", "c")

    def person(terminal: Terminal) -> None:
        for text in ("User has heard:", "It is 42.\r\n\r\n", "it is your turn"):
            terminal.sees(text)
        answers("exit\r")(terminal)

    assert at_terminal("resume", "c", person=person)[0] == 0


def test_ctrl_c_still_stops_it_while_nobody_is_asked(serve: Serve) -> None:
    server = serve("Never heard.", hold=[0])

    def person(terminal: Terminal) -> None:
        answers("Hello.\r")(terminal)
        server.wait_for(1, timeout=60)
        main_thread_gets(signal.SIGINT)

    code, text = at_terminal("chat", "--session", "c", person=person)
    assert code == 130
    assert text.endswith("\nInterrupted.\nContinue with: duologue resume c\n")
    assert [row.status for row in list_sessions()] == ["unfinished"]


def test_a_session_is_shown_in_the_browser_from_a_file_of_the_users_own(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    duologue("chat", "--session", "c", lines="What is it?\nexit\n")
    code, text = at_terminal("show", "c", "--html", person=lambda terminal: None)
    path = Path(text.strip().replace("\n", ""))
    assert (code, opened) == (0, [path.as_uri()])
    assert "It is 42." in path.read_text()
    assert path.parent.stat().st_mode & 0o077 == 0


def test_prompts_stay_out_of_output_that_goes_into_a_file(
    server: ScriptedServer, tmp_path: Path
) -> None:
    with (tmp_path / "chat.txt").open("w") as file:
        person = answers("What is it?\n", "exit\n")
        code, _ = at_terminal("chat", "--session", "c", person=person, stdout=file.fileno())
    assert code == 0
    written = (tmp_path / "chat.txt").read_text()
    assert written.startswith("Chat with Assistant\nSession c starts.\n\nUser:\nWhat is it?\n\n")
    assert "\n\nAssistant:\nIt is 42.\n\nEnded after 1 round" in written
    assert "User>" not in written


@pytest.mark.exhaustive
def test_in_a_terminal_of_its_own_calls_are_edited_and_ctrl_c_sent_twice_is_one(
    monkeypatch: pytest.MonkeyPatch, serve: Serve, tmp_path: Path
) -> None:
    """Edits start from the current value, long arguments are cut, and a key is a signal."""
    install_package(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    words = "word " * 60 + "\x1b[2J\u202e\u200b  last"
    call = {"name": "send", "args": {"to": "ann", "body": words}, "id": "1"}
    server = serve(Reply(tool_calls=[call]), "Sent.")
    with in_a_process("chat", "--session", "c", "--tool", "send") as (terminal, process):
        for asked, keys in (
            ("User> ", "Gone\x7f\x7f.\r"),
            ('  to: "ann"', ""),
            ("characters)", ""),
            ("approve (a), edit (e), reject (r), respond (s), view all (v)> ", "what\r"),
            ("'what' is not a decision", ""),
            ("(v)> ", "v\r"),
            ("last", ""),
            ("(v)> ", "e\r"),
            # The line starts with the current value.
            ("last", "x\r"),
            ("That is not JSON", ""),
            ("empty: back)> ", '\x15["ann"]\r'),
            ("The arguments must be a JSON object", ""),
            ("empty: back)> ", '\x15{"to": "bob"}\r'),
            ("User> ", "\x03"),
        ):
            terminal.sees(asked)
            terminal.types(keys)
        # `uv run` sends it twice.
        time.sleep(0.05)
        terminal.interrupts(process)
    assert process.returncode == 130
    text = terminal.text.replace("^C", "")
    assert text.endswith("\nInterrupted.\nContinue with: duologue resume c\n")
    assert "Traceback" not in text
    assert not {"\u202e", "\u200b"} & {*text}
    # It appears once in the display and once in the editor.
    assert text.replace("\n", "").count(r"word \u001b[2J\u202e\u200b  last") >= 2
    assert server.calls[0].prompt[-1]["content"] == "Go."
    assert "'args': {'to': 'bob'}" in server.calls[1].prompt[-1]["content"]


@pytest.mark.process
def test_in_a_terminal_of_its_own_a_message_is_brought_back_edited_and_pasted_whole(
    monkeypatch: pytest.MonkeyPatch, serve: Serve, tmp_path: Path
) -> None:
    if "GNU" not in str(pytest.importorskip("readline").__doc__):
        pytest.skip("another line editor knows less of it")
    up, left = "\x1b[A", "\x1b[D"
    serve("One.", "Two.", "Three.", "Four.")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    with in_a_process("chat", "--session", "c") as (terminal, process):
        for keys in (
            "漢字 is?\r",
            f"{up}{left}\x7ft\r",
            # The marks that a terminal puts around pasted text.
            "\x1b[200~First.\nSecond.\x1b[201~\r",
            f"{up}{up}{up}\r",
        ):
            terminal.sees("User> ")
            terminal.types(keys)
        terminal.sees("User> ")
        terminal.types("exit\r")
        process.wait(60)
    said = [text for speaker, text in Session("c").state().transcript if speaker == "User"]
    assert said == ["漢字 is?", "漢字 it?", "First.\nSecond.", "漢字 is?"]
    # None of it is stored.
    assert not list((tmp_path / "home").iterdir())
