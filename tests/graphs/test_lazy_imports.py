"""What needs no model server does not load the client of OpenAI, which would cost more than it.

One process does one thing after the other: what is loaded stays so, and the first one is told.
"""

import json
import subprocess
import sys
from pathlib import Path

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
command("dump", "s", "--store", "kept.db")
assert duologue.get_session("s", store="kept.db").messages
loaded("get_session")
print(json.dumps(found))

from duologue.nodes.models.client.clients import client
loaded("clients")
print(json.dumps(found["clients"]))
"""


def test_nothing_but_a_model_that_needs_it_loads_the_client_of_openai(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _STEPS], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    without, with_it = map(json.loads, ran.stdout.splitlines())
    steps = ["import", "run", "--help", "sessions", "show", "dump", "get_session"]
    assert without == {step: [] for step in steps}
    # Or this would tell nothing.
    assert {"openai", "langchain_openai"} <= set(with_it)
