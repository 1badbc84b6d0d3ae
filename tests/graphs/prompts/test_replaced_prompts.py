"""R14: prompts of models, each in a separate file; a conversation may replace any of them."""

import re
from typing import Any

import pytest

from duologue.graphs import Session, SpecError, converse, load_conversation, role_play
from duologue.nodes.testing import Line, Prompt, ScriptedChatModel
from support.prompts import KIND_PROMPTS, PROMPTS
from support.tables import each_row

TALK: dict[str, Any] = {
    "task": "Plan a garden.",
    "speakers": [{"name": "Ann", "checks_completion": True}, {"name": "Bob"}],
    "end_chat": {"mode": "end_chat_after_first_completion", "max_iterations": 2},
}


def talk(**prompts: object) -> dict[str, Any]:
    return TALK | {"prompts": prompts}


def placeholders(text: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r"\{(\w+)\}", text)))


def other(name: str) -> str:
    """Return another text for a prompt, with its placeholders in another order."""
    return f"OTHER {name} " + " ".join(f"{{{one}}}" for one in placeholders(PROMPTS[name])[::-1])


def test_no_prompt_shows_a_form_that_is_nothing_when_it_is_copied() -> None:
    """R14, R15: no prompt has a placeholder like ``<your solution>``; small models copy it."""
    for text in (*PROMPTS.values(), *KIND_PROMPTS.values()):
        assert text == text.strip()
        assert re.findall(r"<[^>]*>|\[[^\]]*\]", text) == []


@pytest.mark.parametrize("name", PROMPTS)
def test_any_prompt_may_be_said_in_other_words(name: str) -> None:
    """R14: a text replaces the prompt of that name."""
    conversation = load_conversation(talk(**{name: other(name)}))
    assert conversation.prompts[name].text == other(name)
    assert load_conversation(conversation.stored()) == conversation


def test_other_words_are_what_the_model_is_told() -> None:
    """R14: models get the replaced prompts for the start, the role and the verdict."""

    def script(prompt: Prompt) -> Line:
        asked = prompt[-1]["content"]
        left = [] if len(prompt) > 4 else ["the beds"]
        return {"objectives_left": left, "complete": not left} if "Done?" in asked else "Roses."

    model = ScriptedChatModel(script=script)
    given = talk(
        participant="Be {me}.",
        begin="Go!",
        judge_own_task="Done?",
        objectives_left="Left: {objectives}",
    )
    result = converse(given, model=model, store="memory:")
    sent = [str(message.text) for call in model.calls for message in call.messages]
    assert sent[0].startswith("Be Ann.")
    assert sent[1] == "Go!"
    assert "Done?" in sent
    assert PROMPTS["judge_own_task"] not in sent
    assert "Left: the beds" in [message.text for message in result.messages]


@each_row("words_that_can_not_be_filled_are_refused_by_name")
def test_words_that_can_not_be_filled_are_refused_by_name(
    name: str, given: object, words: str
) -> None:
    """R14: a SpecError names the field, in a whole spec and in a kind's short form."""
    for source in (
        talk(**{name: given}),
        {"kind": "blogger", "task": "Bees.", "prompts": {name: given}},
    ):
        with pytest.raises(SpecError) as caught:
            load_conversation(source)
        assert str(caught.value).startswith(f"prompts.{name}")
        assert words in str(caught.value)


def test_braces_that_are_no_placeholder_stay_and_so_do_all_of_a_role_prompt() -> None:
    """R14: only placeholders are replaced."""
    speakers = [{"name": "A", "system_prompt": "{you}"}, {"name": "B"}]
    given = talk(begin='Write {"json": {}} { }') | {"speakers": speakers, "end_chat": {}}
    model = ScriptedChatModel(["Yes."] * 10)
    converse(given, model=model, store="memory:")
    assert [message.text for message in model.calls[0].messages][:2] == [
        "{you}\n\nThe task: Plan a garden.",
        'Write {"json": {}} { }',
    ]


def test_a_registered_text_is_stored_when_the_session_begins() -> None:
    """R14: registering another text later changes nothing, and a fork contains the text itself."""
    given = talk(begin={"name": "short"}) | {"end_chat": {"max_iterations": 1}}

    def run(**prompts: str) -> list[str]:
        model = ScriptedChatModel(script=["Roses.", "Lilies."])
        result = converse(given, session="s", model=model, store="memory:named", prompts=prompts)
        return [message.text for message in result.messages]

    assert run(short="Go!")[0] == "Go!"
    assert run(short="Begin at once!")[0] == "Go!"
    Session("s", store="memory:named").fork(
        into="t", prompts={"begin": "Start."}, end_chat={"max_iterations": 2}
    )
    again = Session("t", store="memory:named").resume(
        model=ScriptedChatModel(script=["Tulips.", "Ivy."])
    )
    assert again.conversation.prompts["begin"].text == "Start."
    with pytest.raises(SpecError, match=r"prompts\.rewrite_reply: pass the text itself"):
        Session("s", store="memory:named").fork(prompts={"rewrite_reply": {"name": "short"}})


def test_a_registered_text_must_fit_the_prompt() -> None:
    """R14: a registered text must have the placeholders of its prompt."""
    with pytest.raises(SpecError, match=r"prompts\.begin: the registered text 'bad': unknown"):
        converse(talk(begin={"name": "bad"}), store="memory:", prompts={"bad": "{you}"})
    with pytest.raises(SpecError, match="prompts: 'bad' must be a text, not int"):
        converse(talk(), store="memory:", prompts={"bad": 3})  # type: ignore[dict-item]  # that is the point


def test_a_role_play_takes_prompts_of_its_own() -> None:
    """R14: a role-play's own prompts may contain the roles, the task and the done token."""
    play = role_play(
        "Plan a garden",
        "Owner",
        "Gardener",
        user_prompt="{me} asks {other} for {task}, until {done}. {else}",
        assistant_prompt="{me} helps {other}.",
    )
    user, assistant = play.speakers
    assert play.system_prompt(user, "beds") == (
        "Owner asks Gardener for beds, until <CAMEL_TASK_DONE>. {else}\n\n"
        "Your message must begin with 'Instruction:' and contain a line that begins with 'Input:'."
    )
    assert play.system_prompt(assistant, None).startswith("Gardener helps Owner.")


def test_both_questions_say_that_agreeing_is_not_doing() -> None:
    """R5: judges' prompts explain that agreeing to do something is not the same as doing it."""
    for name in ("judge_own_task", "list_objectives_left", "separate_judge"):
        assert "Agreeing to do something is not the same as doing it." in PROMPTS[name]
