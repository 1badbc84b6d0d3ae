"""Tools of Python modules on the command line: --tools, and the commands that are printed."""

import socket
import sys
from collections.abc import Iterator
from importlib import invalidate_caches
from pathlib import Path
from typing import Any

import pytest

from duologue.graphs import Conversation, Session, Speaker, converse, list_sessions
from duologue.nodes.testing import ScriptedChatModel
from support.cli_help import Serve, duologue
from support.tables import each_row, read_rows

SHOP = '''
from langchain_core.tools import tool


def find_order(number: int) -> str:
    """Return the charges of an order."""
    return f"Order {number}: charged twice."


async def refund(number: int) -> str:
    """Pay money back."""
    return f"Paid order {number} back."


@tool("close")
def close_order(number: int) -> str:
    """Close an order."""
    return "Closed."


def open_door(*doors, **keys):
    return doors


ALL = [find_order, refund, close_order]
'''

DESK = read_rows(__file__, "desk_file")

CALL: Any = {"tool_calls": [{"name": "refund", "args": {"number": 7}, "id": "1"}]}
APPROVE = '{"decisions": [{"type": "approve"}]}'


@pytest.fixture(autouse=True)
def _shop(tmp_path: Path) -> Iterator[None]:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "desk.toml").write_text(DESK)
    before = [*sys.path]
    # Another test may have imported its own module of this name.
    sys.modules.pop("shop", None)
    invalidate_caches()
    yield
    sys.path[:] = before
    sys.modules.pop("shop", None)


def printed(session: str) -> str:
    """Return the first line that `show` prints for the answer to a session's question."""
    return next(line for line in duologue("show", session).stdout.splitlines() if "Answer" in line)


def test_a_printed_command_works_after_a_run_in_another_process(serve: Serve) -> None:
    serve(CALL, "Done.")
    started = duologue("run", "desk.toml", "--tools", "shop", "--session", "one")
    assert started.exit_code == 5
    (question,) = Session("one").state().pending
    answer = f"--question {question.id} one '{APPROVE}'"
    assert f"Answer it with: duologue answer --tools shop {answer}" in started.stderr
    missing = duologue("answer", "one", APPROVE)
    assert missing.exit_code == 2
    assert "there is no tool 'find_order'; pass it in Python, as tools of converse, name its " in (
        missing.stderr
    )
    places = "".join(f"--tools shop:{name} " for name in ("find_order", "refund", "close_order"))
    assert missing.stderr.startswith(f"Continue with: duologue resume {places}one\n")
    assert f"duologue answer {places}{answer}" in duologue("show", "one").stdout
    assert duologue("answer", "--tools", "shop", "one", APPROVE).exit_code == 0
    assert "(It returns: Paid order 7 back.)" in duologue("show", "one").stdout


@pytest.mark.parametrize("tools", ["find_order", "find_order refund"])
def test_show_prints_where_the_tools_of_a_session_are(
    tools: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    shop = __import__("shop")
    named = [getattr(shop, name) for name in tools.split()]
    clerk = Speaker("Clerk", tools=named, interrupt_on=dict.fromkeys(tools.split(), True))
    said = Speaker("Bo", replies=[{"kind": "text", "text": "Hello."}])
    talk = Conversation("Help.", [said, Speaker("Ann", replies=["human"]), clerk])
    converse(talk, session="two")
    options = "".join(f"--tools shop:{name} " for name in tools.split())
    assert printed("two").startswith(f"Answer it with: duologue answer {options}--question ")
    assert f"duologue resume {options}two\n" in duologue("show", "two").stdout
    forked = duologue("fork", "two", "--into", "three")
    assert forked.stderr == f"Continue with: duologue resume {options}three\n"
    named_again = duologue("fork", "two", "--into", "four", "--tools", "shop")
    assert named_again.stderr == "Continue with: duologue resume --tools shop four\n"


def test_an_object_that_no_command_can_pass_is_passed_in_python() -> None:
    def pay(amount: int) -> str:
        """Pay."""
        return "Paid."

    def price(turn: object) -> str:
        return "Nine."

    clerk = Speaker("Clerk", tools=[pay], interrupt_on={"pay": True})
    talk = Conversation("Help.", [clerk, Speaker("Ann", replies=[price])])
    call: Any = {"tool_calls": [{"name": "pay", "args": {"amount": 7}, "id": "1"}]}
    converse(talk, session="two", model=ScriptedChatModel([call]))
    (question,) = Session("two").state().pending
    assert printed("two") == (
        "Answer it in Python: from duologue import Session; Session('two').answer("
        f"{APPROVE}, question='{question.id}', tools=[pay], functions={{'price': price}})"
    )


def test_nothing_is_imported_that_the_command_does_not_name(tmp_path: Path, serve: Serve) -> None:
    serve(CALL)
    duologue("run", "desk.toml", "--tools", "shop", "--session", "one")
    (tmp_path / "shop.py").write_text("raise SystemExit('imported')")
    sys.modules.pop("shop")
    for command in (["show", "one"], ["sessions"], ["resume", "one"], ["fork", "one"]):
        assert "imported" not in duologue(*command).output
    assert "shop" not in sys.modules
    assert "SystemExit: imported" in duologue("resume", "--tools", "shop", "one").stderr


@each_row("a_module_that_does_not_fit_is_named", "given", "said")
def test_a_module_that_does_not_fit_is_named(given: str, said: str) -> None:
    refused = duologue("run", "desk.toml", "--tools", given)
    assert refused.exit_code == 2
    assert refused.stderr.startswith(f"Error: --tools: {said}")
    assert not list_sessions()


@pytest.mark.parametrize("given", ["shop", "shop:ALL"])
def test_check_reads_all_tools_of_a_module_or_a_list(given: str) -> None:
    checked = duologue("check", "desk.toml", "--tools", given)
    assert checked.exit_code == 0
    assert checked.stdout.endswith("The tool refund: registered\nThe tool close: registered\n")


@pytest.mark.parametrize(("command", "option"), [("serve", "--port"), ("mcp", "--http")])
def test_a_served_file_may_name_the_tools_of_a_module(
    command: str, option: str, serve: Serve
) -> None:
    serve()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        arguments = (command, "desk.toml", option, port)
        assert "there is no tool 'find_order'" in duologue(*arguments).stderr
        refused = duologue(*arguments, "--tools", "shop")
    assert f"Error: {option}: {port} is not available" in refused.stderr


def test_the_agent_of_a_chat_may_call_the_tools_of_a_module(serve: Serve) -> None:
    server = serve(CALL, "Done.")
    asked = duologue("chat", "Hi", "--tools", "shop", "--approve", "refund", "--session", "c")
    assert asked.exit_code == 5
    (offered,) = [one.body["tools"] for one in server.requests if "tools" in one.body]
    assert [one["function"]["name"] for one in offered] == ["find_order", "refund", "close"]
