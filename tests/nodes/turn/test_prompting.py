"""Prompts: their limit, with everything that is added to the log's messages, and short ones."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain_core.messages import AnyMessage, BaseMessage, HumanMessage

from duologue.graphs import Conversation, role_play
from duologue.graphs.rules.position import Phase, Position
from duologue.graphs.text.words import tokens_of_message
from duologue.nodes.models import model as resolve
from duologue.nodes.models.adapters import families
from duologue.nodes.models.adapters.base import SMALL
from duologue.nodes.models.tool_binding import tokens_of_tools
from duologue.nodes.turn import prompt as prompting
from duologue.nodes.turn.node_context import NodeContext, Resources
from duologue.nodes.turn.prompt import PromptAdditions, build_prompt, turn_additions, view_of
from duologue.nodes.turn.running_sessions import RunningSession
from duologue.tools.registry.registry import Registry
from support.log import kind_of, make_line, make_metadata
from support.models import Models
from support.prompts import PROMPTS, fill
from support.shape_help import play

LIMIT = 600
BRIEF = {"system_prompt": "You cook. {task}", "reminder": "Say what to cook next, and why. {task}"}


def look(where: str) -> str:
    """Look somewhere, and say everything that is to be seen there, in one sentence for each."""
    return where


def moment(
    context: dict[str, Any],
    turns: int,
    draft: str | None = None,
    tools: Sequence[Callable[[str], str]] = (),
) -> NodeContext:
    """Return the context of Ann's turn after so many turns; a draft makes it her second try."""
    conversation = Conversation.model_validate(
        {
            "task": "Cook.",
            "speakers": [
                {"name": "Ann", "context": context, "small_model_prompt": BRIEF, "tools": tools},
                {"name": "Bob"},
            ],
        }
    )
    log: list[AnyMessage] = [make_line(0, "Begin.", "instruction", audience=("Ann",))]
    for number in range(2 * turns):
        about = make_metadata("speech", speaker=conversation.names[number % 2])
        log.append(make_line(len(log), f"{number}. Yes, and so on.", about))
    position = Position(speaker="Bob", phase=Phase.SPOKEN)
    if draft is not None:
        rejected = make_metadata("draft", speaker="Ann", audience=(), problem="It is wrong.")
        log.append(make_line(len(log), draft, rejected))
        position = Position(speaker="Ann", phase=Phase.REJECTED)
    resources = Resources(Models(), Registry({"tools": tools}))
    return NodeContext(
        conversation,
        position,
        log=log,
        resources=resources,
        session=RunningSession(conversation),
        task="Cook.",
    )


def tokens(messages: Sequence[BaseMessage]) -> int:
    return sum(map(tokens_of_message, messages))


@pytest.mark.part(1)
@pytest.mark.parametrize("kind", ["tokens", "summary"])
@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("draft", [None, "", "No. " * 60], ids=("turn", "blank", "draft"))
def test_a_request_to_mend_and_a_reminder_are_within_the_limit(
    kind: str, draft: str | None, *, small: bool
) -> None:
    """L5, Z3, U5: this applies at every length of the log, and no message that fits is left out."""
    context = {"kind": kind, "limit": LIMIT} | ({"words": 20} if kind == "summary" else {})
    sizes: list[int] = []
    for turns in range(1, 40):
        now = moment(context, turns, draft)
        short = now.speaker.small_model_prompt if small else None
        sizes.append(tokens(build_prompt(now, turn_additions(now, short))))
    assert max(sizes) <= LIMIT
    assert max(sizes) > LIMIT * 0.7


def test_a_judges_question_is_within_the_limit() -> None:
    """Y9: the judge's question comes after the speaker's view."""
    behind = [HumanMessage(PROMPTS["list_objectives_left"] * 3)]
    for turns in range(1, 40):
        now = moment({"kind": "tokens", "limit": LIMIT}, turns)
        view = view_of(now, PromptAdditions(last=behind))
        assert tokens([*view, *behind]) <= LIMIT


def test_the_tools_are_within_the_limit() -> None:
    for turns in range(1, 40):
        now = moment({"kind": "tokens", "limit": LIMIT}, turns, tools=[look])
        offered = tokens_of_tools(now.conversation, now.resources.registry, now.speaker)
        assert 0 < offered <= LIMIT - tokens(view_of(now))


@pytest.mark.parametrize("context", [{"kind": "all"}, {"kind": "last", "limit": 3}], ids=str)
def test_what_stands_in_front_is_not_weighed_where_tokens_do_not_count(
    context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Building the schemas of many tools is the slowest part, so it is skipped."""

    def never(*_: object) -> int:
        raise AssertionError("the tools are asked for")

    monkeypatch.setattr(prompting, "tokens_of_tools", never)
    now = moment(context, 3)
    assert view_of(now)


def test_z2_the_embedded_model_rewrites_no_task_unless_it_is_asked_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The scripted model takes the place of the embedded one."""
    made = families.adapter_of

    def as_small(*given: Any) -> Any:  # noqa: ANN401
        adapter = made(*given)
        adapter.prompting = SMALL
        return adapter

    monkeypatch.setattr(resolve, "adapter_of", as_small)
    task, better = "Build a bot", "Build a bot that trades tea."
    said = ["Instruction: Begin.\nInput: None", "Solution: I began. Next request."]
    result, _ = play(role_play(task, "Owner", "Coder", max_iterations=1), said)
    assert result.specified_task == task
    assert "specified_task" not in {kind_of(one) for one in result.messages}
    options: dict[str, Any]
    for options in ({"specify_task": True}, {"task_specification": {"small_models": True}}):
        spec = role_play(task, "Owner", "Coder", max_iterations=1, **options)
        result, model = play(spec, [better, *said])
        assert result.specified_task == better
        asked = fill(PROMPTS["specify_task_small_model"], task=task)
        assert model.calls[0].prompt[0]["content"] == asked
