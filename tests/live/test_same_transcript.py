"""One conversation makes the same requests and messages in every form and with every runner."""

from pathlib import Path
from typing import Any

import pytest
import tomli_w
from langchain_core.messages import AnyMessage
from langgraph_sdk import get_client

from duologue import (
    Conversation,
    EndChat,
    EndChatMode,
    Guards,
    MaxCalls,
    MaxMessages,
    ModelSettings,
    Moderator,
    Outcome,
    Price,
    PrivateOpening,
    Speaker,
    StopRequested,
    aconverse,
    group_solve,
    role_play,
)
from duologue.nodes.testing.server import ScriptedServer
from support.log import append, log_of, without_ids
from support.tables import read_rows

pytestmark = [pytest.mark.live, pytest.mark.exhaustive]

FORM: dict[str, Any] = {
    "task": "Plan a garden",
    "user_role": "Garden Owner",
    "assistant_role": "Gardener",
    "seed": 7,
}


def asked(server: ScriptedServer, before: int) -> list[dict[str, Any]]:
    # The runner decides whether an answer is streamed.
    way = ("stream", "stream_options")
    return [
        {name: value for name, value in call.body.items() if name not in way}
        for call in server.calls[before:]
    ]


GROUP: dict[str, Any] = read_rows(__file__, "group")


def in_python() -> Conversation:
    """Return the conversation of `GROUP`, built in Python."""
    return group_solve(
        [
            Speaker(
                name="Ann Lee",
                task="Keep a secret.",
                private_opening=PrivateOpening(prompt="Choose a secret number."),
                checks_completion=True,
                keep_self_reflection=True,
            ),
            Speaker(
                name="Ben",
                task="Guess it.",
                checks_completion=True,
                model_settings=ModelSettings(seed=7),
            ),
            Speaker(name="Cy", task="Watch.", private_opening=PrivateOpening(lines=("Ann fibs.",))),
        ],
        end_chat=EndChat(
            mode=EndChatMode.ONE_LAST_GROUP_CHAT_AFTER_FIRST_COMPLETION,
            when=MaxMessages(limit=30) | (MaxCalls(limit=40) & StopRequested()),
            guards=Guards(farewells=0),
        ),
        shift_owner="Ben",
        reconcile_first_message=True,
        turn_order=Moderator(),
        prices={"scripted": Price(input=1, output=2)},
        model="scripted",
    )


@pytest.mark.parametrize(
    ("kind", "form", "conversation", "calls"),
    [
        ("role_play", FORM, role_play(**FORM), 6),
        ("group_solve", GROUP, in_python(), 14),
    ],
    ids=["role_play", "group_solve"],
)
async def test_python_toml_json_dict_and_dev_server_give_one_transcript(
    kind: str,
    form: dict[str, Any],
    conversation: Conversation,
    calls: int,
    dev_server: Any,  # noqa: ANN401
    model_server: ScriptedServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.url)
    monkeypatch.setenv("DUOLOGUE_MODEL", "scripted")
    short, long = tmp_path / "short.toml", tmp_path / "long.toml"
    short.write_text(tomli_w.dumps({"kind": kind, **form}))
    long.write_text(conversation.to_toml())
    whole = tmp_path / "whole.json"
    whole.write_text(conversation.model_dump_json())
    sources: dict[str, Any] = {
        "python": conversation,
        "toml": short,
        "whole toml": long,
        "json": str(whole),
        "dict": conversation.model_dump(mode="json"),
        "short dict": {"kind": kind, **form},
    }
    found: dict[str, tuple[list[dict[str, Any]], list[AnyMessage], Outcome]] = {}
    for way, source in sources.items():
        before = len(model_server.calls)
        result = await aconverse(source, store=tmp_path / "sessions.db")
        assert result.outcome is not None
        found[way] = (asked(model_server, before), result.messages, result.outcome)
    async with get_client(url=dev_server.url) as client:
        for way, given in {"form": form, "studio": {"conversation": sources["dict"]}}.items():
            before = len(model_server.calls)
            on = await client.threads.create()
            state: Any = await client.runs.wait(on["thread_id"], kind, input=given)
            ended = Outcome.model_validate(state["outcome"])
            values: Any = (await client.threads.get_state(on["thread_id"]))["values"]
            assert values["messages"] == state["messages"]
            said = log_of(
                {name: append([], [values.get(name, [])]) for name in ("messages", "unspoken")}
            )
            found[way] = (asked(model_server, before), said, ended)
    bodies, messages, outcome = found["python"]
    assert len(bodies) == calls
    for way, (its_bodies, its_messages, its_outcome) in found.items():
        assert its_bodies == bodies, way
        # The duration is not compared.
        assert its_outcome.model_copy(update={"seconds": outcome.seconds}) == outcome, way
        assert without_ids(its_messages) == without_ids(messages), way
