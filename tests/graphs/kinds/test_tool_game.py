"""The guessing game of the Yacana documentation with its tool, which compares the numbers."""

import re

from duologue.graphs import Conversation, Result, converse, group_solve
from duologue.graphs.prompts import prompts
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedChatModel, ScriptedToolCall

CHOOSE = "Generate a secret number between 1 and 20. Output it this once."
SECRET = "The secret number is 14."  # noqa: S105
GUESS = "Guess a number between 1 and 20, one at a time. You are told how it compares."
COMPARE = "A player guesses the number you generated. Compare each guess by the tool."


def game(**master: object) -> Conversation:
    return group_solve(
        [
            {"name": "Player", "task": GUESS, "checks_completion": True},
            {
                "name": "Game master",
                "task": COMPARE,
                "private_opening": {"prompt": CHOOSE},
                "tools": ["high_low"],
            }
            | master,
        ],
        end_chat={"mode": "end_chat_after_first_completion", "max_iterations": 10},
    )


def players(prompt: Prompt) -> Line:
    """Reply for either player from its prompt; the player halves the remaining range."""
    system, *seen = prompt
    texts = [str(message["content"]) for message in seen]
    if texts[-1] == prompts.JUDGE_OWN_TASK:
        won = any("you won" in text for text in texts)
        return {"objectives_left": [] if won else ["the number"], "complete": won}
    if "You are Game master" in system["content"]:
        return master(seen, texts)
    assert SECRET not in " ".join(texts), "the secret was heard"
    low, high = 1, 20
    guesses = [int(found[1]) for text in texts if (found := re.search(r"^(\d+)\?$", text))]
    for text, guess in zip([text for text in texts if "number is" in text], guesses, strict=False):
        low, high = (guess + 1, high) if "higher" in text else (low, guess - 1)
    if any("you won" in text for text in texts):
        return "I won!"
    return f"{(low + high) // 2}?"


def master(seen: Prompt, texts: list[str]) -> Line:
    if texts[-1] == CHOOSE:
        return SECRET
    secret = re.search(r"secret number is (\d+)\.", texts[1])
    guess = re.search(r"(\d+)\?$", texts[-1])
    if guess is None:
        # There is no guess yet, or the tool has answered.
        return f"Hear this: {texts[-1]}" if seen[-1]["role"] == "tool" else "I am ready."
    assert secret is not None, "the master does not know its secret"
    numbers = {"secret_number": int(secret[1]), "guessed_number": int(guess[1])}
    return Reply(tool_calls=[ScriptedToolCall(name="high_low", args=numbers, id=f"c{len(seen)}")])


def play(conversation: Conversation) -> tuple[Result, ScriptedChatModel]:
    model = ScriptedChatModel(script=players)
    return converse(conversation, model=model, store="memory:"), model


ANSWERS = [
    ("10?", "The secret number is higher than 10."),
    ("15?", "The secret number is lower than 15."),
    ("12?", "The secret number is higher than 12."),
    ("13?", "The secret number is higher than 13."),
    ("14?", "The guess is right: you won!"),
]


def rounds(result: Result) -> list[tuple[str, str]]:
    said = [(name, text) for name, text in result.transcript if "?" in text or "number is" in text]
    said += [("Game master", text) for _, text in result.transcript if "you won" in text]
    texts = [text for _, text in said[1:]]
    return list(zip(texts[::2], texts[1::2], strict=True))


def test_what_the_tool_gives_is_what_the_player_hears() -> None:
    """Y18: as in the documentation, the tool's output is the master's message."""
    result, model = play(game(return_direct=True, tool_choice="high_low"))
    assert rounds(result) == ANSWERS
    assert result.outcome is not None
    assert result.outcome.completed == ("Player",)
    heard = [message.text for message in result.viewpoint("Player")]
    assert not any("secret_number" in text or "14." in text for text in heard)
    # The tool's answer ends the master's turn without another model call.
    after_a_tool = [call for call in model.calls if call.prompt[-1]["role"] == "tool"]
    assert after_a_tool == []


def test_by_default_the_master_answers_after_seeing_what_the_tool_gave() -> None:
    """Y18: by default, the master replies after it has seen the tool's output."""
    result, _ = play(game())
    heard = [text for _, text in result.transcript if text.startswith("Hear this: ")]
    assert heard == [f"Hear this: {answer}" for _, answer in ANSWERS]
