"""One conversation, however it is given and whatever runs it, asks and says the same."""

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AnyMessage
from langgraph_sdk import get_client
from pydantic import TypeAdapter

from duologue.graphs import Outcome, aconverse, role_play
from duologue.nodes.scripted_server import ScriptedServer

pytestmark = pytest.mark.live

FORM: dict[str, Any] = {
    "task": "Plan a garden",
    "user_role": "Garden Owner",
    "assistant_role": "Gardener",
    "seed": 7,
}


def asked(server: ScriptedServer, before: int) -> list[dict[str, Any]]:
    # Whether an answer is streamed is the runner's affair.
    way = ("stream", "stream_options")
    return [
        {name: value for name, value in call.body.items() if name not in way}
        for call in server.calls[before:]
    ]


async def test_python_toml_json_dict_and_dev_server_give_one_transcript(
    dev_server: Any,  # noqa: ANN401
    model_server: ScriptedServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.url)
    monkeypatch.setenv("DUOLOGUE_MODEL", "scripted")
    conversation = role_play(**FORM)
    toml = tmp_path / "garden.toml"
    lines = ['kind = "role_play"', *(f"{name} = {json.dumps(FORM[name])}" for name in FORM)]
    toml.write_text("\n".join(lines))
    whole = tmp_path / "garden.json"
    whole.write_text(conversation.model_dump_json())
    sources: dict[str, Any] = {
        "python": conversation,
        "toml": toml,
        "json": str(whole),
        "dict": conversation.model_dump(mode="json"),
        "short dict": {"kind": "role_play", **FORM},
    }
    found: dict[str, tuple[list[dict[str, Any]], list[AnyMessage], Outcome | None]] = {}
    for way, source in sources.items():
        before = len(model_server.calls)
        result = await aconverse(source, store=tmp_path / "sessions.db")
        found[way] = (asked(model_server, before), result.messages, result.outcome)
    async with get_client(url=dev_server.url) as client:
        for way, given in {"form": FORM, "studio": {"conversation": sources["dict"]}}.items():
            before = len(model_server.calls)
            on = await client.threads.create()
            state: Any = await client.runs.wait(on["thread_id"], "role_play", input=given)
            ended = Outcome.model_validate(state["outcome"])
            said = TypeAdapter(list[AnyMessage]).validate_python(state["messages"])
            found[way] = (asked(model_server, before), said, ended)
    bodies, messages, outcome = found["python"]
    assert len(bodies) == 6
    assert outcome is not None
    for way, (its_bodies, its_messages, its_outcome) in found.items():
        assert its_bodies == bodies, way
        assert its_outcome == outcome, way
        assert [m.model_dump() for m in its_messages] == [m.model_dump() for m in messages], way
