"""Scripted talks of a simulated user end at the right message, for the right reason.

The right end of each script is written down beside it. 200 talks are drawn by a fixed seed: a
script, a language, and a number of ordinary rounds before it.
"""

from random import Random
from typing import NamedTuple

import pytest

from duologue import Scenario, simulate
from duologue.graphs.scenarios import EndKind
from duologue.nodes.testing import ScriptedChatModel

STOP, GIVE_UP, TRANSFER = "###STOP###", "###GIVE-UP###", "###TRANSFER###"
CAP = 12


class Script(NamedTuple):
    """The last messages of a user, and the right end."""

    user: tuple[str, ...]
    kind: EndKind
    replies: int
    """Number of replies of the agent to these messages."""
    reason: str = "done_token"
    agent: str = ""
    """The agent's reply. A different sentence each time if empty."""


class Language(NamedTuple):
    """The texts of a language."""

    asks: str
    go_ahead: str
    thanks: str
    stop_it: str
    refused: str
    answers: str


LANGUAGES = {
    "English": Language(
        "My order {} was charged twice.",
        "Yes, go ahead.",
        "Thank you, goodbye!",
        "Please stop the second payment. I am not done yet.",
        "You refuse to help me.",
        "I have looked at order {}.",
    ),
    "German": Language(
        "Meine Bestellung {} wurde doppelt berechnet.",
        "Ja, bitte machen Sie das.",
        "Vielen Dank, auf Wiedersehen!",
        "Bitte stoppen Sie die zweite Zahlung. Ich bin noch nicht fertig.",
        "Sie wollen mir nicht helfen.",
        "Ich habe die Bestellung {} geprüft.",
    ),
    "French": Language(
        "Ma commande {} a été facturée deux fois.",
        "Oui, allez-y.",
        "Merci beaucoup, au revoir !",
        "Arrêtez le deuxième paiement. Je n'ai pas fini.",
        "Vous refusez de m'aider.",
        "J'ai vérifié la commande {}.",
    ),
}


def scripts(words: Language) -> dict[str, Script]:
    """Return the scripts in a language. Each begins after at least one reply of the agent."""
    more = words.asks.format(7)
    return {
        "only the word": Script((STOP,), "done", 0),
        "the word in bold": Script((f"**{STOP}**",), "done", 0),
        "the word after a confirmation": Script((f"{words.go_ahead} {STOP}",), "done", 1),
        "the word on the last line": Script((f"{words.go_ahead}\n{STOP}",), "done", 1),
        "the word after thanks": Script((f"{words.thanks}\n\n{STOP}",), "done", 1),
        "a confirmation, then the word": Script((words.go_ahead, STOP), "done", 1),
        "thanks, then the word": Script((words.thanks, STOP), "done", 1),
        "a word like stop, then the word": Script((words.stop_it, STOP), "done", 1),
        "gives up": Script((f"{GIVE_UP}\n{words.refused}",), "gave_up", 0),
        "gives up after a confirmation": Script(
            (words.go_ahead, f"{GIVE_UP}\n{words.refused}"), "gave_up", 1
        ),
        "is passed on": Script((TRANSFER,), "handed_over", 0),
        "is passed on after a question": Script((more, TRANSFER), "handed_over", 1),
        # Each blank message is requested twice. The agent goes on until the cap.
        "is silent": Script(("",) * 2 * CAP, "stopped", CAP, "max_iterations"),
        "asks new questions for ever": Script(
            tuple(words.asks.format(2000 + number) for number in range(CAP)),
            *("stopped", CAP, "max_iterations"),
        ),
        "the word with a period": Script((f"{STOP}.",), "done", 0),
        "the word twice": Script((f"{STOP} {STOP}",), "done", 0),
        "the word within a question": Script(
            (f"{more} {STOP} {more}", words.go_ahead, STOP), "done", 2
        ),
        "two confirmations, then the word": Script((words.go_ahead, more, STOP), "done", 2),
        "a confirmation and thanks, then the word": Script(
            (words.go_ahead, words.thanks, STOP), "done", 2
        ),
        "is silent once, then goes on": Script(("", words.go_ahead, STOP), "done", 1),
        "gives up without a reason": Script((GIVE_UP,), "gave_up", 0),
        "gives up after the reason": Script((f"{words.refused}\n{GIVE_UP}",), "gave_up", 0),
        "is passed on, with thanks": Script((f"{words.thanks}\n{TRANSFER}",), "handed_over", 0),
        "gives up, although it says the word": Script(
            (f"{GIVE_UP}\n{words.refused}\n{STOP}",), "gave_up", 0
        ),
        "the agent says the word": Script((more, STOP), "done", 1, agent=f"Order 7. {STOP}"),
        "the agent says the word for a person": Script((more, STOP), "done", 1, agent=TRANSFER),
        "the agent says goodbye too early": Script((more, STOP), "done", 1, agent=words.thanks),
    }


def talk(script: Script, words: Language, before: int) -> tuple[EndKind, int, str | None]:
    """Return the kind of end, the number of the agent's replies, and the reason."""
    first = [words.asks.format(1000 + number) for number in range(before)]
    count = 0

    def agent(messages: list[object]) -> str:
        nonlocal count
        count += 1
        if count > before and script.agent:
            return script.agent
        return words.answers.format(1000 + count)

    result = simulate(
        Scenario("Get one charge refunded.", max_iterations=CAP),
        agent,
        model=ScriptedChatModel([*first, *script.user]),
        store="memory:",
    )
    return result.ended.kind, count, result.ended.stop_reason


def check(name: str, language: str, before: int) -> None:
    words = LANGUAGES[language]
    script = scripts(words)[name]
    found = talk(script, words, before)
    # The cap includes the replies before the script.
    replies = min(before + script.replies, CAP)
    assert found == (script.kind, replies, script.reason), (name, language, before)


@pytest.mark.part(3)
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", scripts(LANGUAGES["English"]))
def test_each_script_ends_where_it_should(name: str, language: str) -> None:
    check(name, language, 1)


@pytest.mark.exhaustive
def test_two_hundred_drawn_talks_end_neither_too_early_nor_too_late() -> None:
    random = Random(20)  # noqa: S311  # a stored seed, nothing secret
    names, languages = [*scripts(LANGUAGES["English"])], [*LANGUAGES]
    drawn = [
        (random.choice(names), random.choice(languages), random.randint(1, 6)) for _ in range(200)
    ]
    assert len({name for name, _, _ in drawn}) >= 20
    assert {language for _, language, _ in drawn} == {*LANGUAGES}
    for name, language, before in drawn:
        check(name, language, before)


@pytest.mark.part(1)
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("word", [STOP, TRANSFER, GIVE_UP])
def test_a_word_in_the_first_message_is_rejected(word: str, language: str) -> None:
    words = LANGUAGES[language]
    asks = words.asks.format(1001)
    script = Script((f"{asks} {word}", asks, STOP), "done", 1)
    assert talk(script, words, 0) == ("done", 1, "done_token")


@pytest.mark.part(1)
@pytest.mark.parametrize("language", LANGUAGES)
def test_endless_farewells_are_ended_by_a_guard(language: str) -> None:
    words = LANGUAGES[language]
    endless = Script((words.thanks,) * CAP, "stopped", 0, agent=words.thanks)
    kind, replies, reason = talk(endless, words, 1)
    assert kind == "stopped"
    assert replies < CAP / 2
    assert reason in ("farewells", "repeated_replies")
