"""Remedies for likely wrong guesses: names of other libraries, and values of another kind.

This module is imported only when an error is explained.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        ("instructions", "prompt", "rubric", "system", "system_message"),
        ("system_prompt", "prompt"),
    ),
    **dict.fromkeys(("backstory", "description", "persona", "role"), ("system_prompt", "goal")),
    "user": ("persona", "human"),
    "person": ("human",),
    **dict.fromkeys(("chat_model", "llm", "llm_config", "model_client"), ("model",)),
    **dict.fromkeys(("agents", "members", "participants"), ("speakers",)),
    **dict.fromkeys(("goal", "objective", "topic"), ("task",)),
    **dict.fromkeys(("max_round", "max_rounds", "max_turns", "rounds"), ("max_iterations",)),
    **dict.fromkeys(
        ("end", "end_when", "stop", "stop_when", "termination", "termination_condition", "until"),
        ("end_chat", "when", "end_when"),
    ),
    **dict.fromkeys(("is_termination_msg", "stop_condition", "terminate_when"), ("end_chat",)),
    **dict.fromkeys(("evaluator", "judge"), ("judge_model", "judge", "score")),
    **dict.fromkeys(("evaluators", "metrics", "scorers"), ("score",)),
    **dict.fromkeys(("n", "num_runs", "repeat", "repeats", "runs"), ("trials",)),
    **dict.fromkeys(("csv", "data", "dataset", "inputs", "values"), ("vary",)),
    **dict.fromkeys(
        ("approve", "human_in_the_loop", "needs_approval", "require_approval"), ("interrupt_on",)
    ),
    **dict.fromkeys(("steps", "turns"), ("script",)),
    **dict.fromkeys(("max", "max_messages", "max_seconds", "max_tokens"), ("limit", "end_chat")),
    **dict.fromkeys(("sources", "speaker"), ("by",)),
    **dict.fromkeys(("mention", "text", "word"), ("token",)),
    "agent": ("assistant",),
    **dict.fromkeys(("output_schema", "output_type", "response_format"), ("format", "schema")),
    "format": ("schema",),
    **dict.fromkeys(("conversation_id", "id", "thread_id"), ("session",)),
    **dict.fromkeys(("selector_func", "speaker_selection_method"), ("turn_order",)),
}
"""Names from other libraries, and likely guesses, with the fields and options they mean here."""

_REPLIES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("agent", "app", "chain", "graph", "runnable"), "replies=[agent]"),
    **dict.fromkeys(("func", "function", "reply_func"), "replies=[function]"),
    **dict.fromkeys(("human", "human_input", "is_human", "is_person"), 'replies=["human"]'),
    **dict.fromkeys(("human_input_mode", "person", "user"), 'replies=["human"]'),
    **dict.fromkeys(("answer", "message", "reply"), 'replies=[{"kind": "text", "text": "…"}]'),
}
"""Names for a source of replies, with the argument of a `Speaker` that they mean."""

_ENDS: Final[Mapping[str, str]] = {
    "max_messages": "MaxMessages(…)",
    "max_calls": "MaxCalls(…)",
    "max_tokens": "MaxTokens(…)",
    "max_cost": "MaxCost(…)",
    "max_seconds": "MaxSeconds(…)",
    **dict.fromkeys(("done_token", "stop_word", "token", "word"), 'DoneToken("WORD")'),
    **dict.fromkeys(("function", "predicate"), "Predicate(function)"),
}
"""Names for a part of `end_chat`, with the end that they mean."""

_OF_CONVERSATION: Final[Mapping[str, str]] = {
    **dict.fromkeys(("max_iterations", "max_round", "max_rounds", "max_turns"), "end_chat={0}"),
    **dict.fromkeys(("end_chat", "judge", "mode", "task", "turn_order", "when"), "{1}=…"),
    **dict.fromkeys(("guards", "opening", "seed", "speakers", "temperature"), "{1}=…"),
}
"""Fields of a conversation, which a run has not, with the argument of `replace`."""

_OF_RUN: Final = ("answer", "callbacks", "models", "session", "store")
"""Options of a run, which a conversation has not."""

_OF_SCENARIO: Final = (
    *("checks", "criteria", "expected_ends", "goal", "knows", "language", "max_iterations"),
    *("must_mention", "must_not_say", "persona", "script", "world"),
)
"""Fields of a scenario, which `simulate` has not."""

_OF_SUITE: Final = "; it belongs to a suite: write Suite({{'NAME': scenario}}, {}=…) for run_suite"

_OF_FORK: Final[Mapping[str, str]] = {
    **dict.fromkeys(("id", "name", "new", "session", "session_id"), "write into='NEW-ID'"),
    "conversation": "pass the changed fields alone, such as task='…'",
    **dict.fromkeys(("store", "to"), "a fork is in the same store; write fork().copy(to=…)"),
}
"""Likely guesses in a fork, with the remedy."""


def suggest_argument(unknown: str, known: Sequence[str]) -> str:
    """Suggest the argument that sets what an unknown field means, or nothing."""
    name = unknown.casefold()
    if "replies" in known and name in _REPLIES:
        return f"; write {_REPLIES[name]}"
    if "guards" in known and name in _ENDS:
        return f"; write end_chat={_ENDS[name]}, or when={_ENDS[name]} beside other fields"
    if name == "criteria" and "judge" in known:
        return "; write judge=SeparateJudge([…])"
    if "turn_order" in known and name in _OF_RUN:
        return f"; pass it to the run, as in converse(conversation, {name}=…)"
    if "turn_order" in known and name == "kind":
        return "; read a dict with a kind by load_conversation"
    if "must_not_say" in known and name in ("personas", "trials"):
        return _OF_SUITE.format(name)
    if "must_not_say" in known and name == "judge":
        return "; write criteria=[…]"
    return ""


def suggest_for_simulation(unknown: str) -> str:
    """Suggest where to set what an unknown option of a simulation means, or nothing."""
    name = unknown.casefold()
    if name == "judge":
        return "; write Scenario(GOAL, criteria=[…]), and name the judge's model by judge_model"
    if name in ("personas", "trials"):
        return _OF_SUITE.format(name)
    meant = next((one for one in (name, *SYNONYMS.get(name, ())) if one in _OF_SCENARIO), None)
    return f"; it belongs to the scenario: write Scenario(GOAL, {meant}=…)" if meant else ""


def suggest_for_fork(unknown: str) -> str:
    """Suggest what to write in place of a field that a fork can't change, or nothing."""
    found = _OF_FORK.get(unknown.casefold())
    return f"; {found}" if found else ""


def suggest_replacement(unknown: str) -> str:
    """Suggest how to set a field of the conversation that was passed to a run, or nothing."""
    form = _OF_CONVERSATION.get(unknown.casefold())
    if form is None:
        return ""
    change = form.format('{"max_iterations": …}', unknown)
    return (
        f"; it belongs to the conversation: run a copy, conversation.replace({change}), or fork "
        f"the session with {change}"
    )


def _name_kind(value: Any) -> str:  # noqa: ANN401  # any wrong value
    """Return the kind of a value, without importing the class of a LangChain object."""
    if isinstance(value, str):
        return "word" if value.isidentifier() else "text"
    if isinstance(value, int) and not isinstance(value, bool):
        return "number"
    if isinstance(value, list | tuple):
        return "list"
    if hasattr(value, "_llm_type"):
        return "model"
    if hasattr(value, "ainvoke") and hasattr(value, "get_name"):
        return "agent"
    if hasattr(value, "speakers") and hasattr(value, "end_chat"):
        return "conversation"
    if hasattr(value, "criteria"):
        return "judge"
    return "function" if callable(value) and not isinstance(value, type) else "other"


_MODEL_REMEDY: Final = "pass the model to the run, as in converse(conversation, model=model)"

_NAMED_MODEL: Final = (
    'a conversation contains only its name: write model="NAME", and pass '
    'models={{"NAME": model}} to the run, or model=model for all speakers'
)

_VALUES: Final[Sequence[tuple[str, str, str]]] = (
    (r"speakers\.\d+", "agent|function|conversation", 'write Speaker("NAME", replies=[{kind}])'),
    (r"speakers\.\d+", "text|word", "write Speaker({value!r})"),
    (r"speakers\.\d+", "model", f'write Speaker("NAME"), and {_MODEL_REMEDY}'),
    (r"(.*\.)?model", "agent", 'an agent speaks by Speaker("NAME", replies=[agent])'),
    (r"(.*\.)?model", "model", _NAMED_MODEL),
    (r"(name|system_prompt)", "agent", 'write Speaker("NAME", replies=[agent])'),
    (r"(.*\.)?interrupt_on", "list|other|text|word", 'write interrupt_on={{"TOOL": True}}'),
    (
        r"(.*\.)?end_chat",
        "judge",
        'write judge=SeparateJudge([…]) and end_chat="end_chat_after_first_completion"',
    ),
    (r"(.*\.)?end_chat", "function", "write end_chat=Predicate(function)"),
    (r"(.*\.)?end_chat", "number", "write MaxMessages({value}) or EndChat(max_iterations={value})"),
    (
        r"(.*\.)?end_chat\.mode",
        "text|word",
        "for a word that ends it, write DoneToken({value!r})",
    ),
    (r"(.*\.)?judge", "agent|function|list|model|other", "write judge=SeparateJudge([…])"),
    (r"(.*\.)?judge\.kind", "text", "write judge=SeparateJudge([{value!r}])"),
    (r"task", "list", 'write the task first, as in Conversation("TASK", [speaker, …])'),
    (r"assistant|user", "agent", 'write {{"replies": [agent]}}'),
    (r"(.*\.)?(world|check|checks\.\d+)", "text|word", "pass the function, not its name"),
    (r"(.*\.)?checks\.\d+", "other", "write a function of the result"),
    (r"scenario", "text|word", "write Scenario({value!r})"),
    (r"scenario", "list", "write run_suite(Suite({{'NAME': scenario}}), agent, name=…)"),
    (
        r"scenario",
        "agent|conversation|function|judge|model|number|other",
        "write Scenario('GOAL', …)",
    ),
    (r"scenarios", "list", "write {{'NAME': scenario}}"),
    (r"(.*\.)?script\.\d+", "function", "call it, as in user()"),
    (r"(.*\.)?script\.\d+\.kind", "text|word", "for a message, write user({value!r})"),
    (r".*\.?replies\.\d+\.kind", "text", 'for a fixed text, {{"kind": "text", "text": {value!r}}}'),
    (
        r".*\.?replies\.\d+\.kind",
        "word",
        'for a registered agent or function, {{"kind": "agent", "name": {value!r}}} or '
        '{{"kind": "function", "name": {value!r}}}',
    ),
    (
        r".*\.?replies\.\d+",
        "other",
        "pass a function, an agent with ainvoke, or a dict with a kind",
    ),
)
"""Remedies for a value: the pattern of the field's path, the kinds of the value, and the text."""


_LONGEST: Final = 60
"""Maximum number of characters of a value that a remedy repeats."""


def suggest_value(path: str, value: Any, *, wants_list: bool = False) -> str:  # noqa: ANN401
    """Suggest what to write in place of a wrong value of a field, or nothing."""
    try:
        return _suggest_value(path, value, wants_list=wants_list)
    except Exception:
        # Any attribute of a user's object may raise, such as those of a proxy without a context.
        return ""


def _suggest_value(path: str, value: Any, *, wants_list: bool) -> str:  # noqa: ANN401
    kind = _name_kind(value)
    if isinstance(value, str) and len(value) > _LONGEST:
        value = f"{value[:_LONGEST]}…"
    for pattern, kinds, remedy in _VALUES:
        if kind in kinds.split("|") and re.fullmatch(pattern, path):
            return "; " + remedy.format(kind=kind, value=value)
    if wants_list:
        shown = (
            repr(value) if kind in ("text", "word", "number") else "…" if kind == "other" else kind
        )
        return f"; put it into a list, as in {path.rpartition('.')[2]}=[{shown}]"
    name = getattr(value, "name", None)
    return f"; write its name, {name!r}" if kind == "other" and isinstance(name, str) else ""
