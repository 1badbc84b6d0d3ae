"""Commands that are refused: one error that names the problem, no call, and nothing changes."""

import json
import shlex
import tomllib
from pathlib import Path

import pytest

from duologue.nodes.testing import Reply
from support.cli_help import ANSWER, DONE, FIRST, SHORT, Serve, duologue

TABLE = tomllib.loads(Path(__file__).with_name("refused.toml").read_text(encoding="utf-8"))


def stored() -> list[str]:
    """Return the texts about all sessions, and a file that `init` might overwrite."""
    ids = [json.loads(row)["session"] for row in duologue("sessions", "--json").stdout.splitlines()]
    return [Path("g.toml").read_text(), *(duologue("show", session).stdout for session in ids)]


def test_a_refused_command_is_one_error_before_any_call(
    monkeypatch: pytest.MonkeyPatch, serve: Serve, tmp_path: Path
) -> None:
    for name, text in TABLE["files"].items():
        Path(name).write_text(text)
    Path("binary.toml").write_bytes(b"\xff\xfe\x00")
    Path("folder.toml").mkdir()
    server = serve(FIRST, ANSWER, DONE, FIRST, Reply(error=400))
    duologue(*SHORT)
    duologue(*["h" if word == "g" else word for word in SHORT])
    duologue("chat", "--session", "c")
    duologue("chat", "--session", "ended", lines="exit\n")
    duologue("session", "dump", "g", "--output", "g.json")
    duologue("session", "dump", "g", "--as", "Owner", "--output", "owner.json")
    dump = json.loads(Path("g.json").read_text(encoding="utf-8"))
    Path("newer.json").write_text(json.dumps(dump | {"version": dump["version"] + 1}))
    before, files, wrong = stored(), {*tmp_path.iterdir()}, []
    for command, code, named in TABLE["rows"]:
        ran = duologue(*shlex.split(command))
        *usage, error = ran.stderr.splitlines() or [""]
        is_named = error.startswith("Error: ") and named in error
        is_short = not usage or usage[0].startswith(("Usage: ", "Continue with: "))
        if (ran.exit_code, ran.stdout, is_named, is_short) != (code, "", True, True):
            wrong.append((command, ran.exit_code, ran.output))
    assert not wrong
    assert len(server.calls) == 5
    assert (stored(), {*tmp_path.iterdir()}) == (before, files)
    assert len(before) == 5
