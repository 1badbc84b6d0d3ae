"""The programs of `docs/examples` print the output that users see."""

import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest

from duologue.nodes.testing.server import ScriptedServer

FOLDER = Path(__file__).parent.parent / "docs" / "examples"
EXAMPLES = tomllib.loads(Path(__file__).with_name("examples.toml").read_text("utf-8"))["examples"]


@pytest.mark.part(3)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["name"])
def test_an_example_prints_this(
    example: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with ScriptedServer(example["script"]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        runpy.run_path(str(FOLDER / f"{example['name']}.py"), run_name="__main__")
    assert len(server.calls) == len(example["script"])
    assert capsys.readouterr().out.strip() == example["printed"]


def test_every_example_is_tried() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == {example["name"] for example in EXAMPLES}
