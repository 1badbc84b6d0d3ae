"""The blogger: its rounds, its options and the early end (L9)."""

import pytest

from duologue.graphs import Reason, blogger
from duologue.graphs.kinds.coder import BEGIN_WRITING, SATISFIED
from support.shape_help import play, texts

VERSIONS = ["Bees dance.", "Bees dance for you.", "Bees dance in eights.", "Bees dance maps."]
REMARKS = ["Say for whom.", "Say how they do it.", "Say why they do it."]
WHOLE = [text for pair in zip(VERSIONS, [*REMARKS, ""], strict=True) for text in pair][:-1]


@pytest.mark.part(1)
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_writer_and_critic_speak_in_rounds_and_the_writer_has_the_last_word(rounds: int) -> None:
    """L9: after the rounds, the writer sends a final version."""
    said = WHOLE[: 2 * rounds + 1]
    result, model = play(blogger("A post on bees", rounds=rounds), said)
    assert [text for _, text in result.transcript] == said
    assert [name for name, _ in result.transcript] == [*["Writer", "Critic"] * rounds, "Writer"]
    assert result.last_message("Writer") == VERSIONS[rounds]
    assert result.outcome is not None
    assert result.outcome.reasons == (Reason.MAX_MESSAGES,)
    assert len(model.calls) == 2 * rounds + 1


@pytest.mark.part(1)
@pytest.mark.parametrize("at", [1, 3, 5])
@pytest.mark.parametrize("said", [SATISFIED, f"It is good now.\n{SATISFIED}"])
def test_a_satisfied_critic_ends_it_with_the_version_that_it_has_read(at: int, said: str) -> None:
    """L9: a satisfied critic ends it early, with the version that it has read."""
    result, _ = play(blogger("Bees"), [*WHOLE[:at], said])
    assert result.outcome is not None
    assert (result.outcome.reasons[0], result.outcome.by) == (Reason.DONE_TOKEN, "Critic")
    assert result.last_message("Writer") == WHOLE[at - 1]


def test_the_writer_does_not_end_it_nor_does_a_critic_who_only_mentions_the_word() -> None:
    said = [SATISFIED, f"I am not {SATISFIED} yet.", "Bees dance."]
    result, _ = play(blogger("Bees", rounds=1), said)
    assert [text for _, text in result.transcript] == said


def test_names_prompts_prefix_word_and_parameters_can_be_set() -> None:
    spec = blogger(
        "Bees",
        writer="Ada Poet",
        critic="Lou",
        writer_prompt="Rhyme on {task} until {critic} is quiet; {braces} stay.",
        critic_prompt="Count {writer}'s feet. When they fit: {satisfied}",
        critic_prefix="Count this:\n",
        satisfied="IT FITS",
        temperature=0.9,
        seed=7,
        model="some-model",
    )
    assert [one.system_prompt for one in spec.speakers] == [
        "Rhyme on {task} until Lou is quiet; {braces} stay.",
        "Count Ada Poet's feet. When they fit: IT FITS",
    ]
    assert (spec.model, spec.seed) == ("some-model", 7)
    assert {speaker.model_settings.temperature for speaker in spec.speakers} == {0.9}
    spec = spec.model_copy(update={"model": None})
    result, model = play(spec, ["Bees, please.", "Almost.", "Bees, bees.", "It fits."])
    assert result.transcript[-1] == ("Lou", "It fits.")
    assert model.calls[0].messages[0].text.startswith("Rhyme on Bees until Lou is quiet; {braces}")
    assert texts(model.calls[1]) == ["u:Count this:\nBees, please."]
    assert model.calls[0].kwargs["seed"] == 7


def test_without_a_prefix_the_critic_hears_the_text_alone() -> None:
    _, model = play(blogger("Bees", critic_prefix=None, rounds=1), ["One.", "Two.", "Three."])
    assert texts(model.calls[1]) == ["u:One."]
    assert texts(model.calls[0]) == [f"u:{BEGIN_WRITING}"]


def test_the_most_rounds_make_a_conversation_that_can_be_run() -> None:
    assert blogger("Bees", rounds=499_999).end_chat.max_iterations == 500_000
