"""Remedies for likely wrong guesses: names of other libraries, and values of another kind.

This module is imported only when an error is explained.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    name: meant
    for names, meant in (
        ("instructions|prompt|rubric|system|system_message", ("system_prompt", "prompt")),
        ("backstory|description|persona|role", ("system_prompt", "goal")),
        ("user", ("persona", "human")),
        ("person", ("human",)),
        ("chat_model|llm|llm_config|model_client", ("model",)),
        ("agents|members|participants", ("speakers",)),
        ("goal|objective|topic", ("task",)),
        ("max_round|max_rounds|max_turns|rounds", ("max_iterations",)),
        ("end|end_when|stop|stop_when|until", ("end_chat", "when", "end_when")),
        ("termination|termination_condition", ("end_chat", "when", "end_when")),
        ("is_termination_msg|stop_condition|terminate_when", ("end_chat",)),
        ("evaluator|judge", ("judge_model", "judge", "score")),
        ("evaluators|metrics|scorers", ("score",)),
        ("n|num_runs|repeat|repeats|runs", ("trials",)),
        ("csv|data|dataset|inputs|values", ("vary",)),
        ("approve|human_in_the_loop|needs_approval|require_approval", ("interrupt_on",)),
        ("steps|turns", ("script",)),
        ("max|max_messages|max_seconds|max_tokens", ("limit", "end_chat")),
        ("sources|speaker", ("by",)),
        ("mention|text|word", ("token",)),
        ("agent", ("assistant",)),
        ("output_schema|output_type|response_format", ("format", "schema")),
        ("format", ("schema",)),
        ("conversation_id|id|thread_id", ("session",)),
        ("selector_func|speaker_selection_method", ("turn_order",)),
    )
    for name in names.split("|")
}
"""Names from other libraries, and likely guesses, with the fields and options they mean here."""

_OF_SUITE: Final = (
    "it belongs to a suite: write Suite({{'NAME': scenario}}, {name}=…) for run_suite"
)

_NAMES: Final[Sequence[tuple[str, str, str]]] = (
    # Sources of replies.
    ("replies", "agent|app|chain|graph|runnable", "write replies=[agent]"),
    ("replies", "func|function|reply_func", "write replies=[function]"),
    ("replies", "human|human_input|is_human|is_person", 'write replies=["human"]'),
    ("replies", "human_input_mode|person|user", 'write replies=["human"]'),
    ("replies", "answer|message|reply", 'write replies=[{{"kind": "text", "text": "…"}}]'),
    *(
        ("guards", names, f"write end_chat={end}, or when={end} beside other fields")
        for names, end in (
            ("max_messages", "MaxMessages(…)"),
            ("max_calls", "MaxCalls(…)"),
            ("max_tokens", "MaxTokens(…)"),
            ("max_cost", "MaxCost(…)"),
            ("max_seconds", "MaxSeconds(…)"),
            ("done_token|stop_word|token|word", 'DoneToken("WORD")'),
            ("function|predicate", "Predicate(function)"),
        )
    ),
    ("judge", "criteria", "write judge=SeparateJudge([…])"),
    (
        "turn_order",
        "answer|callbacks|models|session|store",
        "pass it to the run, as in converse(conversation, {name}=…)",
    ),
    ("turn_order", "kind", "read a dict with a kind by load_conversation"),
    ("must_not_say", "personas|trials", _OF_SUITE),
    ("must_not_say", "judge", "write criteria=[…]"),
    (
        "make_agent",
        "judge",
        "write Scenario(GOAL, criteria=[…]), and name the judge's model by judge_model",
    ),
    ("make_agent", "personas|trials", _OF_SUITE),
    *(
        ("make_agent", names, "it belongs to the scenario: write Scenario(GOAL, {name}=…)")
        for names in (
            "checks|criteria|expected_ends|goal|knows|language|max_iterations",
            "must_mention|must_not_say|persona|script|world",
        )
    ),
    *(
        (
            "run",
            names,
            f"it belongs to the conversation: run a copy, conversation.replace({change}), or fork "
            f"the session with {change}",
        )
        for names, change in (
            ("max_iterations|max_round|max_rounds|max_turns", 'end_chat={{"max_iterations": …}}'),
            ("end_chat|judge|mode|task|turn_order|when", "{name}=…"),
            ("guards|opening|seed|speakers|temperature", "{name}=…"),
        )
    ),
    ("into", "id|name|new|session|session_id", "write into='NEW-ID'"),
    ("into", "conversation", "pass the changed fields alone, such as task='…'"),
    ("into", "store|to", "a fork is in the same store; write fork().copy(to=…)"),
)
"""Remedies for a name: a field or option beside which it was written, the names, and the text.

"run" means the options of a run of a conversation.
"""


def suggest_name(unknown: str, known: Collection[str]) -> str:
    """Suggest how to set what an unknown field or option beside known ones means, or nothing."""
    unknown = unknown.casefold()
    for name in (unknown, *SYNONYMS.get(unknown, ())):
        for beside, names, remedy in _NAMES:
            if beside in known and name in names.split("|"):
                return "; " + remedy.format(name=name)
    return ""


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
    (r"scenario", "any", "write Scenario('GOAL', …)"),
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
        if re.fullmatch(pattern, path) and (kinds == "any" or kind in kinds.split("|")):
            return "; " + remedy.format(kind=kind, value=value)
    if wants_list:
        shown = (
            repr(value) if kind in ("text", "word", "number") else "…" if kind == "other" else kind
        )
        return f"; put it into a list, as in {path.rpartition('.')[2]}=[{shown}]"
    name = getattr(value, "name", None)
    return f"; write its name, {name!r}" if kind == "other" and isinstance(name, str) else ""
