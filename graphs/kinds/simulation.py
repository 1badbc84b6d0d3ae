"""Simulation: a simulated user with a private goal talks with an agent that is tested.

The simulated user speaks first and ends the conversation: when the goal is met and the agent has
answered, when it gives up, or when the agent passes it to a person. After tau2-bench.
"""

from collections.abc import Sequence
from textwrap import shorten
from typing import Annotated, Any, Final, Unpack

from pydantic import AfterValidator, Field

from ..common.data import Cap, Mark, Named, Temperature, Text, Thing, check_distinct
from ..conversation.conversation_options import (
    ReadAs,
    SpeakerName,
    TaskOptions,
    Things,
    mark_default,
    mark_shared_default,
)
from ..conversation.fields import Opening
from ..conversation.judges import MOST_CRITERIA
from ..ends.end_chat import EndChatMode
from ..ends.events import DoneToken
from ..prompts.prompts import fill_template, read_kind_prompt
from .load import Parts, form_of, read_small_model_prompt, short_form

DONE: Final = "###STOP###"
"""The user's word for a goal that is met, as in tau2-bench."""

GIVE_UP: Final = "###GIVE-UP###"
"""The user's word for giving up. The reason follows it."""

HAND_OVER: Final = "###TRANSFER###"
"""The user's word for being passed to a person, as in tau2-bench."""

OUT_OF_SCOPE: Final = "###OUT-OF-SCOPE###"
"""The word of tau2-bench's users for a scenario that does not say how to continue."""

USER = read_kind_prompt("simulation_user")

_RULES: Final = {
    name: read_kind_prompt(f"simulation_{name}")
    for name in ("persona", "knows", "must_not_say", "language")
}
"""The rules of the user's prompt, by the parameters that they contain."""

USER_SMALL_MODEL = read_small_model_prompt("simulation_user")

BEGIN_ASKING = read_kind_prompt("simulation_begin")

ASSISTANT = read_kind_prompt("simulation_assistant")

ASSISTANT_TASK = read_kind_prompt("simulation_assistant_task")

JUDGE = read_kind_prompt("simulation_judge")

_TITLE: Final = 60  # characters


@short_form(
    roles={"user": "user", "assistant": "assistant"},
    message="goal",
)
def simulation(
    goal: Text,
    *,
    agent: Annotated[Thing | None, ReadAs(Named | None)] = None,
    user: SpeakerName = "User",
    assistant: SpeakerName = "Agent",
    persona: Text | None = None,
    knows: Text | None = None,
    must_not_say: Text | None = None,
    language: Text | None = None,
    tools: Things = (),
    criteria: Annotated[
        Sequence[str],
        ReadAs(
            Annotated[
                tuple[Text, ...], AfterValidator(check_distinct), Field(max_length=MOST_CRITERIA)
            ]
        ),
    ] = (),
    user_prompt: Text = USER,
    assistant_prompt: Text = ASSISTANT,
    done_token: Mark = DONE,
    give_up_token: Mark = GIVE_UP,
    hand_over_token: Mark = HAND_OVER,
    max_iterations: Cap = 10,
    temperature: Temperature = None,
    **options: Unpack[TaskOptions],
) -> Parts:
    """Build a conversation between a simulated user and an agent that is tested.

    The simulated user speaks first. The conversation ends in one of these ways:

    - The user's message is only ``done_token``, or the agent has answered a message that contains
      it.
    - The user says ``give_up_token`` and the reason.
    - The user says ``hand_over_token``, because the agent passes it to a person.
    - A cap or a guard is reached.

    The criteria do not end the conversation. They are judged after the end, by `Session.judge` or
    a batch with ``judge_at_end``.

    Args:
        goal: The user's private task, written to the user: "You want to …". The agent does not see
            it.
        agent: The registered agent that is tested, or in Python the agent. It receives only the
            messages of the conversation, without a system prompt. A model replies if None.
        user: The simulated user's name. Python and files also accept a speaker's fields, such as
            ``model``.
        assistant: The agent's name. Python and files also accept a speaker's fields.
        persona: A description of the user and its style. No description if None.
        knows: The information that the user may reveal when it is needed. No information if None.
        must_not_say: The information that the user must not reveal. No such rule if None.
        language: The language in which the user writes. The model chooses if None.
        tools: The tools that the user may call: registered names, or in Python the tools.
        criteria: Statements about the conversation that a separate judge checks after the end.
        user_prompt: The user's system prompt. ``{user}``, ``{assistant}``, ``{done}``,
            ``{give_up}`` and ``{hand_over}`` in it are replaced by the names and the words. The
            persona, the other rules and the goal follow it.
        assistant_prompt: The system prompt of a model that replies for the agent. ``{me}`` and
            ``{user}`` in it are replaced by the two names.
        done_token: The word with which the user reports that the goal is met.
        give_up_token: The word with which the user gives up.
        hand_over_token: The word with which the user reports that it is passed to a person.
        max_iterations: Maximum number of rounds.
        temperature: The temperature of both speakers. 0.2 if None.
        **options: Other fields of a `Conversation`, such as ``end_chat``, ``model`` or ``seed``.

    Returns:
        The conversation, ready for `converse`.

    Raises:
        SpecError: A field is empty, unknown or wrong; names it.

    Example:
        >>> from duologue import converse, simulation
        >>> from duologue.nodes.testing import ScriptedChatModel
        >>> model = ScriptedChatModel(script=["Please refund order 7.", "Refunded.", "###STOP###"])
        >>> result = converse(simulation("Get order 7 refunded"), model=model, store="memory:docs")
        >>> result.outcome.explanations
        ('User said that the goal is met',)
    """
    tokens = {"done": done_token, "give_up": give_up_token, "hand_over": hand_over_token}
    names = {"user": user, "assistant": assistant}
    rules = dict(zip(_RULES, (persona, knows, must_not_say, language), strict=True))
    prompt = "\n\n".join(
        [
            fill_template(user_prompt, **names, **tokens),
            *(fill_template(_RULES[name], **{name: rule}) for name, rule in rules.items() if rule),
        ]
    )
    model_settings = mark_shared_default({"temperature": temperature}, "temperature")
    simulated = {
        "name": user,
        "task": goal,
        "system_prompt": mark_default(prompt, "user_prompt", *_RULES, *_TOKENS),
        "small_model_prompt": mark_default(
            {name: fill_template(text, done=done_token) for name, text in USER_SMALL_MODEL.items()}
        ),
        "tools": mark_default(tools, "tools"),
        "model_settings": model_settings,
    }
    tested: dict[str, Any] = {
        "name": assistant,
        "task": mark_default(fill_template(ASSISTANT_TASK, user=user)),
        "system_prompt": mark_default(
            fill_template(assistant_prompt, me=assistant, user=user), "assistant_prompt"
        ),
        "writes_output": mark_default(True),
        "model_settings": model_settings,
    }
    if agent is not None:
        reply = {"kind": "agent", "name": agent, "with_system_prompt": False}
        tested["replies"] = mark_default((reply,), "agent")
    by = str(user)
    ends = (
        # A message that is only the word needs no answer.
        DoneToken(
            token=done_token, by=by, answered="with_text", meaning="said that the goal is met"
        )
        # The reason follows the word.
        | DoneToken(token=give_up_token, by=by, match="anywhere", meaning="gave up")
        | DoneToken(token=hand_over_token, by=by, meaning="was passed to a person")
    )
    parts: Parts = {
        "title": mark_default(shorten(goal, _TITLE, placeholder=" …")),
        "speakers": (simulated, tested),
        "opening": mark_default(Opening(first_line=BEGIN_ASKING)),
        "end_chat": {
            "max_iterations": mark_default(max_iterations, "max_iterations"),
            "when": mark_default(ends, *_TOKENS),
            # The agent must not read instructions of the test.
            "announce_last_words": mark_default(False),
        },
    }
    if criteria:
        judge = {
            "kind": "separate",
            "criteria": criteria,
            "prompt": mark_default(JUDGE),
            "with_reasons": mark_default(True),
            # The judge is asked once, after the end. Set explicitly, like the mode below.
            "final_verdict": mark_shared_default(False, "criteria"),
        }
        parts["judge"] = mark_default(judge, "criteria")
        # Set explicitly, because the judge is not meant to end the conversation.
        mode = EndChatMode.MAX_ITERATIONS_ONLY
        parts["end_chat"]["mode"] = mark_shared_default(mode, "criteria")
    return parts


_TOKENS: Final = ("done_token", "give_up_token", "hand_over_token")
"""The parameters of the user's words."""

SimulationForm = form_of(simulation)
