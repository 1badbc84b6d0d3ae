"""Questions to a model about prefixes of recorded dialogues: is the conversation over now?

duologue's own judge is asked in both of its forms, by the code that asks it in a conversation. A
bare question beside it shows the difference that its prompts and its reader make.
"""

import asyncio
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from langchain_core.messages import AnyMessage, HumanMessage, messages_to_dict
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import set_config_context

from duologue.graphs import Conversation, Guards, ModelSettings, Speaker
from duologue.graphs.common.settings import load_settings
from duologue.graphs.conversation.judges import VERDICT_TEMPERATURE
from duologue.graphs.conversation.usage import dump_usage, read_usage
from duologue.graphs.log.metadata import Reflection
from duologue.graphs.log.state import new_messages
from duologue.graphs.log.transcript import format_transcript
from duologue.graphs.rules.position import Phase, Position
from duologue.graphs.rules.transitions import decide
from duologue.graphs.rules.turns import Dialogue as RulesDialogue
from duologue.graphs.session.options import Options
from duologue.graphs.session.run import make_resources
from duologue.nodes.judge.self_judge import judge_yourself
from duologue.nodes.judge.verdicts_in_words import yes_or_no
from duologue.nodes.turn.node_context import NodeContext, Resources
from duologue.nodes.turn.running_sessions import RunningSession
from endings.adapter import MANY, Rules
from endings.dialogue import Dialogue
from endings.scoring import is_over
from endings.stored_verdicts import Key, StoredVerdict, VerdictFile
from support.log import fields_of

FORMS = ("structured", "two_questions")
"""The forms of duologue's judge."""

JUDGES = (*FORMS, "bare")
"""All judges."""

TASK = "Have the conversation for which the speakers came together, and complete its purpose."
"""The task of each conversation: records contain none."""

BARE_QUESTION = "{transcript}\n\nIs this conversation finished? Answer yes or no."
"""The whole prompt of the bare question."""

_BARE_TOKENS = 200
"""The output token limit of the bare question, as of the judge's one-word question."""


class Prefix(NamedTuple):
    """The first turns of a dialogue, and whether it should be over after them."""

    dialogue: Dialogue
    turns: int
    is_over: bool


def prefixes_of(dialogue: Dialogue) -> Iterator[Prefix]:
    """Yield the prefixes about which a judge is asked: the label decides them, and a text is last.

    In a conversation a judge is never asked between a call and the message that follows it.
    """
    for place, turn in enumerate(dialogue.turns, start=1):
        over = is_over(dialogue, place)
        if over is not None and not turn.calls and len(dialogue.names) > 1:
            yield Prefix(dialogue, place, over)


def draw_sample(prefixes: Iterable[Prefix], size: int | None, seed: int) -> list[Prefix]:
    """Return a sample: half of it should be over, as far as there are as many of both.

    Args:
        prefixes: All prefixes.
        size: Number of prefixes in the sample. All prefixes if None.
        seed: The same seed, size and prefixes give the same sample, in any order of the prefixes.
    """
    ordered = sorted(prefixes, key=lambda one: (one.dialogue.id, one.turns))
    if size is None or size >= len(ordered):
        return ordered
    chance = random.Random(seed)  # noqa: S311  # a sample, no secret
    parts = {over: [one for one in ordered if one.is_over is over] for over in (True, False)}
    most = max(size // 2, size - len(parts[False]))
    overs = chance.sample(parts[True], min(most, len(parts[True])))
    drawn = [*overs, *chance.sample(parts[False], size - len(overs))]
    return sorted(drawn, key=lambda one: (one.dialogue.id, one.turns))


def ask_all(
    prefixes: Sequence[Prefix], wanted: Sequence[str], model: str, file: VerdictFile
) -> None:
    """Ask the judges about the prefixes, one after another, and store each verdict.

    Args:
        prefixes: The prefixes.
        wanted: The judges, of `JUDGES`.
        model: The name of the model.
        file: The stored verdicts, which are not requested again.

    Raises:
        SpecError: A setting of the environment is invalid.
        ModelError: The model is not available or did not answer. All earlier verdicts are stored.
    """
    resources = make_resources(Options(model=model), load_settings())

    async def run() -> None:
        for prefix in prefixes:
            for judge in wanted:
                await ask(prefix, judge, resources, file)

    asyncio.run(run())


async def ask(
    prefix: Prefix,
    judge: str,
    resources: Resources,
    file: VerdictFile,
) -> None:
    """Ask one judge about a prefix, and store its verdict.

    Args:
        prefix: The prefix.
        judge: One of `JUDGES`.
        resources: The models.
        file: The stored verdicts, which are not requested again.

    Raises:
        ModelError: The model is not available or did not answer.
    """
    key = Key(judge=judge, dialogue=prefix.dialogue.id, turns=prefix.turns)
    if key in file.keys:
        return
    context = _begin(prefix, judge, resources)
    answer = _answer_judge if judge in FORMS else _answer_bare
    with set_config_context(RunnableConfig(configurable={})) as variables:
        found = asyncio.create_task(answer(context), context=variables)
        says_over, messages, usage = await found
    file.add(
        StoredVerdict(
            key=key,
            is_over=prefix.is_over,
            source=prefix.dialogue.source,
            says_over=says_over,
            messages=messages_to_dict(messages),
            usage=usage,
        )
    )


def _begin(prefix: Prefix, judge: str, resources: Resources) -> NodeContext:
    """Return the place in a conversation at which its judge is asked about the prefix."""
    off: Mapping[str, int] = dict.fromkeys(Guards.model_fields, 0)
    conversation = Conversation.model_validate(
        {
            "task": TASK,
            "speakers": [Speaker(name, checks_completion=True) for name in prefix.dialogue.names],
            "judge": {"form": judge if judge in FORMS else FORMS[0]},
            "end_chat": {
                "mode": "end_chat_after_first_completion",
                "max_iterations": MANY,
                "guards": off,
            },
            "max_tool_rounds": MANY,
        }
    )
    rules = Rules(prefix.dialogue, conversation=conversation)
    reason = rules.stops(prefix.dialogue.turns[: prefix.turns])
    assert reason is None, reason
    turn = decide(RulesDialogue(conversation, rules.position))
    assert turn.due is Phase.JUDGED, turn
    return NodeContext(
        conversation,
        rules.position,
        log=rules.log,
        resources=resources,
        session=RunningSession(conversation),
        task=TASK,
    )


_Answer = tuple[bool | None, Sequence[AnyMessage], dict[str, Any]]
"""Whether the conversation is over, the messages of the judge, and the usage of its calls."""


async def _answer_judge(context: NodeContext) -> _Answer:
    messages = list[AnyMessage]()
    while True:
        update: dict[str, Any] = await judge_yourself(context)
        new = new_messages(update)
        messages += new
        reflections = [about for about in map(fields_of, new) if about.kind == "reflection"]
        verdict = next((one.verdict for one in reflections if one.verdict is not None), None)
        if verdict is not None:
            says_over = verdict.complete if verdict.readable else None
            return says_over, messages, update["usage"]
        context = replace(
            context,
            position=Position.model_validate(update["position"]),
            log=[*context.log, *new],
            usage=read_usage(update),
            new=[],
        )


async def _answer_bare(context: NodeContext) -> _Answer:
    model = await context.model(None)
    transcript = format_transcript(context.log, private=False)
    prompt = [HumanMessage(BARE_QUESTION.format(transcript=transcript))]
    most = _BARE_TOKENS if model.adapter.accepts_limit else None
    settings = context.settings("judge", ModelSettings(), VERDICT_TEMPERATURE, most)
    answer = await model.answer(prompt, settings, purpose=Reflection)
    context.count_call(model, answer)
    return yes_or_no(answer.text), [answer], dump_usage(context.usage)
