"""Scripted talks of a simulated user end at the right message, for the right reason.

The right end of each script is written down beside it.
"""

from typing import Any

import pytest

from duologue import Scenario, simulate
from duologue.nodes.testing import ScriptedChatModel
from support.tables import check_rows, read_rows

CAP = 12

LANGUAGES: dict[str, dict[str, str]] = read_rows(__file__, "languages")

SCRIPTS: dict[str, dict[str, Any]] = {
    **{one["name"]: one for one in read_rows(__file__, "user_scripts")},
    # Each blank message is requested twice. The agent goes on until the cap.
    "is silent": {"user": [""] * 2 * CAP, "kind": "stopped", "replies": CAP},
    "asks new questions for ever": {"user": ["{new}"] * CAP, "kind": "stopped", "replies": CAP},
}


def talk(script: dict[str, Any], language: str, before: int) -> tuple[str, int, str | None]:
    """Return the kind of end, the number of the agent's replies, and the reason."""
    words = LANGUAGES[language]
    first = [words["asks"].format(1000 + number) for number in range(before)]
    said = [
        text.format(**words, more=words["asks"].format(7), new=words["asks"].format(2000 + number))
        for number, text in enumerate(script["user"])
    ]
    count = 0

    def agent(messages: list[object]) -> str:
        nonlocal count
        count += 1
        if count > before and "agent" in script:
            return str(script["agent"]).format(**words)
        return words["answers"].format(1000 + count)

    result = simulate(
        Scenario("Get one charge refunded.", max_iterations=CAP),
        agent,
        model=ScriptedChatModel([*first, *said]),
        store="memory:",
    )
    return result.ended.kind, count, result.ended.stop_reason


def check(name: str, language: str, before: int) -> None:
    script = SCRIPTS[name]
    reason = "max_iterations" if script["kind"] == "stopped" else "done_token"
    # The cap includes the replies before the script.
    replies = min(before + script["replies"], CAP)
    assert talk(script, language, before) == (script["kind"], replies, reason)


@pytest.mark.part(1)
@pytest.mark.parametrize("language", LANGUAGES)
def test_each_script_ends_where_it_should(language: str) -> None:
    check_rows([(name, language, 1) for name in SCRIPTS], check)


@pytest.mark.part(1)
@pytest.mark.parametrize("language", LANGUAGES)
def test_endless_farewells_are_ended_by_a_guard(language: str) -> None:
    script = {"user": ["{thanks}"] * CAP, "agent": "{thanks}"}
    kind, replies, reason = talk(script, language, 1)
    assert kind == "stopped"
    assert replies < CAP / 2
    assert reason in ("farewells", "repeated_replies")
