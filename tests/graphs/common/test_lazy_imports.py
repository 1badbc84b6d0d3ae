"""Work without a model server does not import OpenAI's client, which takes longer than the work.

One process does several things in turn. Imports accumulate, so the first action that loads the
client is reported. Commands that neither run nor show a conversation do not load LangGraph either.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from duologue.graphs import converse, role_play
from duologue.nodes.testing import ScriptedChatModel
from support.tables import read_rows

_STEPS = """
import json
import sys
from contextlib import redirect_stdout
from io import BytesIO, TextIOWrapper

found = {}

def loaded(after):
    clients = ("openai", "langchain_openai", "tiktoken", "psycopg", "mcp", "uvicorn")
    found[after] = [name for name in clients if name in sys.modules]

def command(*arguments):
    from duologue.graphs.cli.app import main

    sys.argv = ["duologue", *arguments]
    with redirect_stdout(TextIOWrapper(BytesIO())) as said:
        try:
            main()
        except SystemExit as end:
            assert not end.code, end.code
    said.flush()
    assert said.buffer.getvalue()
    loaded(arguments[0])

import duologue.graphs as duologue
loaded("import")

from duologue import converse
runs = ("duologue.nodes.turn", "langgraph.graph")
found["converse"] = [name for name in runs if name in sys.modules]

from duologue.nodes.testing import ScriptedChatModel
garden = duologue.role_play("Plan a garden", "Owner", "Gardener", specify_task=False)
script = ["Instruction: Dig.\\nInput: None", "Solution: Dug.\\nNext request.", "<CAMEL_TASK_DONE>"]
duologue.Conversation.model_validate(garden.model_dump())
ended = duologue.converse(garden, session="s", store="kept.db", model=ScriptedChatModel(script))
assert ended.messages
loaded("run")

command("--help")
command("sessions", "--store", "kept.db")
command("show", "s", "--store", "kept.db")
command("show", "--why", "s", "--store", "kept.db")
command("session", "dump", "s", "--store", "kept.db")
assert duologue.Session("s", store="kept.db").state().messages
loaded("state")
print(json.dumps(found))

from duologue.nodes.models.client.clients import make_client
loaded("clients")
print(json.dumps(found["clients"]))
"""


@pytest.mark.exhaustive
def test_nothing_but_a_model_that_needs_it_loads_the_client_of_openai(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _STEPS], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    without, with_it = map(json.loads, ran.stdout.splitlines())
    steps = ["import", "converse", "run", "--help", "sessions", "show", "session", "state"]
    assert without == {step: [] for step in steps}
    # Otherwise the test would prove nothing.
    assert {"openai", "langchain_openai"} <= set(with_it)


_COMMAND = """
import atexit
import sys
from duologue.graphs.cli.app import main

atexit.register(lambda: print("langgraph" in sys.modules, file=sys.stderr))
sys.argv[0] = "duologue"
main()
"""


@pytest.mark.part(1)
@pytest.mark.parametrize(
    ("arguments", "said", "loads"),
    read_rows(__file__, "commands_that_show_no_conversation_do_not_load_langgraph"),
)
def test_commands_that_show_no_conversation_do_not_load_langgraph(
    arguments: tuple[str, ...], said: str, loads: bool, tmp_path: Path
) -> None:
    said_by_both = ["Instruction: Dig.\nInput: None", "Solution: Dug.\nNext request."]
    model = ScriptedChatModel([*said_by_both, "<CAMEL_TASK_DONE>"])
    garden = role_play("Plan a garden", "Owner", "Gardener", specify_task=False)
    converse(garden, session="s", store=tmp_path / "kept.db", model=model)
    _check(arguments, said, loads=loads)


@pytest.mark.exhaustive
def test_completion_does_not_load_langgraph() -> None:
    asked = {"_DUOLOGUE_COMPLETE": "complete_bash", "COMP_WORDS": "duologue se", "COMP_CWORD": "1"}
    _check((), "sessions", loads=False, **asked)


_UNKNOWN = """
import sys
from duologue.graphs.cli.app import main

for words in sys.argv[1:]:
    sys.argv = ["duologue", *words.split()]
    try:
        main()
    except SystemExit as error:
        assert error.code == 4, words
    assert "langgraph" not in sys.modules, words
"""


@pytest.mark.exhaustive
def test_commands_on_an_unknown_session_name_it_without_loading_langgraph(tmp_path: Path) -> None:
    (tmp_path / "memory.json").write_text("[]")
    commands = [
        *("show no", "show no --html", "resume no", "answer no Yes", "say no Ann Hi", "fork no"),
        *(
            "session dump no",
            "session load memory.json --as Ann --into no",
            "session reset no",
            "session copy no",
            "export no",
        ),
        *("stop no", "delete no"),
    ]
    ran = subprocess.run(
        [sys.executable, "-c", _UNKNOWN, *commands],
        cwd=tmp_path,
        env=os.environ | {"DUOLOGUE_STORE": "new.db"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("There is no session 'no' in") == len(commands)


def _check(arguments: tuple[str, ...], said: str, *, loads: bool, **settings: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _COMMAND, *arguments],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert said in ran.stdout + ran.stderr
    assert ran.stderr.splitlines()[-1] == str(loads)
