"""The programs of `docs/examples` print the output that users see."""

import runpy
from inspect import cleandoc
from pathlib import Path

import pytest

from duologue.nodes.testing.server import ScriptedServer

FOLDER = Path(__file__).parent.parent / "docs" / "examples"
GARDEN = [
    "A kitchen garden of ten square metres.",
    "Instruction: Choose a place.\nInput: None",
    "Solution: The sunny corner. Next request.",
    "Instruction: Choose plants.\nInput: None",
    "Solution: Beans and kale. Next request.",
]

PRINTED = [
    (
        "role_play",
        [*GARDEN, "<CAMEL_TASK_DONE>"],
        """
        Owner: Instruction: Choose a place.
            Input: None

        Gardener: Solution: The sunny corner. Next request.

        Owner: Instruction: Choose plants.
            Input: None

        Gardener: Solution: Beans and kale. Next request.

        Owner: <CAMEL_TASK_DONE>

        Ended after 2 rounds and 5 messages: Owner said the done token.
        Reason: done_token
        - m0006 Owner: said <CAMEL_TASK_DONE>
        - Owner said the done token
        """,
    ),
    (
        "sale",
        ["3,600?", "3,800.", "DEAL"],
        """
        Buyer: 3,600?

        Seller: 3,800.

        Buyer: DEAL

        Ended after 1 round and 3 messages: Buyer said the done token.
        Sold.
        """,
    ),
    (
        "sale",
        [f"No, I say {number}." for number in range(12)],
        "\n\n".join(
            [
                *(
                    f"{('Buyer', 'Seller')[number % 2]}: No, I say {number}."
                    for number in range(12)
                ),
                "Ended after 6 rounds and 12 messages: the message cap was reached.\nNo deal.",
            ]
        ),
    ),
    (
        "follow_events",
        GARDEN,
        """
        The task: A kitchen garden of ten square metres.
        Owner: Instruction: Choose a place.
        Input: None
        Gardener: Solution: The sunny corner. Next request.
        Owner: Instruction: Choose plants.
        Input: None
        Gardener: Solution: Beans and kale. Next request.
        max_iterations after 2 rounds
        """,
    ),
    (
        "waiting_chat",
        ["The Forum.", "The Pantheon."],
        """
        Waiting for User: User, it is your turn. Enter exit to leave.
        User: What should I see in Rome?

        Guide: The Forum.

        Waiting for User: User, it is your turn. Enter exit to leave.
        The Pantheon.
        quit
        # Chat with Guide

        ## User (m0000)

        > What should I see in Rome?

        ## Guide (m0001)

        > The Pantheon.

        ---

        **Ended after 1 round and 2 messages: User left.**
        """,
    ),
    (
        "structured_answer",
        ['{"starter": "Soup", "main": "Fish", "minutes": 40}'],
        "Soup, then Fish: ready in 40 minutes.",
    ),
]


@pytest.mark.part(3)
@pytest.mark.parametrize(("name", "script", "printed"), PRINTED, ids=[name for name, *_ in PRINTED])
def test_an_example_prints_this(
    name: str,
    script: list[str],
    printed: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ScriptedServer(script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    assert len(server.calls) == len(script)
    assert capsys.readouterr().out.strip() == cleandoc(printed)


def test_every_example_is_tried() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == {name for name, _, _ in PRINTED}
