"""Sample conversations as TOML with comments, and the description of a conversation file."""

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

import tomli_w
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from rich.console import Console

from ...tools.registry.registry import Registry
from ..batch.spec import Batch, BatchLimits
from ..common.errors import SpecError
from ..common.model_help import field_docs
from ..common.validation import did_you_mean, list_names
from ..conversation.conversation import Conversation, how_it_ends
from ..conversation.limits import UNKNOWN_CALLS, plain_calls
from ..ends.end import count_of, lone
from ..ends.end_chat import EndChat
from ..kinds.load import forms_by_kind, load_conversation, read_kind
from ..kinds.role_play import RolePlayForm
from ..show.draw import replies
from ..speakers.speaker import Speaker
from .terminal.console import on_screen, one_line, plain, prose

_WIDTH = 77

_CONVERSATION = "conversation"

_BATCH = "batch"


@dataclass(frozen=True)
class _Part:
    """A table of a sample file."""

    given: Mapping[str, Any]
    """The fields that are set."""
    offered: Mapping[str, Any] = field(default_factory=dict)
    """The fields in comments, which a user can switch on."""
    head: str = ""
    """The lines before the fields. Empty for the top of the file."""
    model: type[BaseModel] | None = None
    """The pydantic model that defines the fields. If None, the model of the file's kind."""


def _speaker(given: Mapping[str, Any], offered: Mapping[str, Any] | None = None) -> _Part:
    return _Part(given, offered or {}, "[[speakers]]", Speaker)


_END_CHAT = _Part(
    {"mode": "one_last_chat_after_first_completion", "max_iterations": 8},
    {
        "when": [{"kind": "done_token", "token": "DEAL"}, {"kind": "max_seconds", "limit": 600}],
        "tell_rounds_left": True,
    },
    "[end_chat]",
    EndChat,
)

_OFFERED: Final = {"temperature": 0.7, "seed": 7, "model": "gpt-4.1"}

_TABLES: Final[Mapping[str, tuple[_Part, ...]]] = {
    "group_solve": (
        _speaker(
            {
                "name": "Ann",
                "task": "Answer guesses by higher, lower or right until the number is found.",
                "checks_completion": True,
                "private_opening": {"prompt": "Choose a secret number from 1 to 100."},
            },
            {"system_prompt": "You like riddles.", "model": "gpt-4.1"},
        ),
        _speaker({"name": "Ben", "task": "Find Ann's secret number."}, {"tools": ["calculator"]}),
        _END_CHAT,
    ),
}
"""The additional tables in the sample files of some kinds, by kind."""

_FILES: Final[Mapping[str, tuple[_Part, ...]]] = {
    _CONVERSATION: (
        _Part(
            {"task": "Agree on a price for the boat."},
            {
                "title": "The boat",
                "model": "gpt-4.1",
                "turn_order": {"kind": "moderator"},
                "judge": {"criteria": ["They agree on a price."]},
            },
        ),
        _speaker(
            {"name": "Buyer", "task": "Pay 4,000 at most.", "checks_completion": True},
            {
                "system_prompt": "You are thrifty. {task}",
                "replies": ["human"],
                "tools": ["calculator"],
                "model": "gpt-4.1",
                "model_settings": {"temperature": 0.7, "max_tokens": 200},
            },
        ),
        _speaker({"name": "Seller", "task": "Take 3,500 at least."}),
        _END_CHAT,
    ),
    _BATCH: (
        _Part({}, {"trials": 3, "score": "complete"}),
        _Part(
            {"specify_task": False, "max_iterations": 1},
            {"mode": "end_chat_after_first_completion", **_OFFERED},
            '[conversation]\nkind = "role_play"',
            RolePlayForm,
        ),
        _Part(
            {
                "task": ["Plan a kitchen garden", "Plan a street party"],
                "user_role": ["Cook", "Teacher", "Nurse", "Shopkeeper"],
                "assistant_role": ["Gardener", "Programmer", "Writer"],
            },
            {"max_iterations": [1, 5]},
            "# What varies: lists of values, or .txt, .csv or .jsonl files with them.\n[vary]",
            RolePlayForm,
        ),
        _Part(
            {},
            {
                "max_cost": 1.5,
                "max_seconds": 3600,
                "rates": {"gpt-4.1": {"requests_per_minute": 500}},
            },
            "[limits]",
            BatchLimits,
        ),
    ),
}


def _parts_of(kind: str) -> tuple[_Part, ...]:
    form = forms_by_kind().get(kind)
    if form is None:
        return _FILES[kind]
    usual = {name: one for name, one in _OFFERED.items() if name in form.model_fields}
    return (_Part(form.example, {**form.example_options, **usual}), *_TABLES.get(kind, ()))


_OTHERS: Final[Mapping[str, type[BaseModel]]] = {_CONVERSATION: Conversation, _BATCH: Batch}
"""The models of the sample files that contain no short form of a conversation."""


def template(kind: str) -> str:
    """Return the sample file of a kind of conversation, or of a batch.

    `conversation` is a conversation with every field.
    """
    kinds = [*forms_by_kind(), *_FILES]
    if kind not in kinds:
        hint = did_you_mean(kind, kinds) or f"; choose one of {list_names(kinds)}"
        raise SpecError(f"there is no kind {kind!r}{hint}")
    what = "batch" if kind == _BATCH else "conversation"
    lines = [
        f"# A sample {what}. Change any value. A field after # is not set;",
        "# remove the # to set it.",
    ]
    model = _OTHERS.get(kind)
    if model is None:
        model = forms_by_kind()[kind]
        lines += ["", f'kind = "{kind}"']
    told: set[tuple[type[BaseModel], str]] = set()
    for part in _parts_of(kind):
        lines += ["", part.head] if part.head else []
        lines += _written(part, part.model or model, told)
    return "\n".join(lines) + "\n"


def _written(
    part: _Part, model: type[BaseModel], told: set[tuple[type[BaseModel], str]]
) -> Iterator[str]:
    """Yield the lines of a table. The meaning of a field is written only the first time."""
    docs = field_docs(model)
    for name, value in {**part.given, **part.offered}.items():
        if (model, name) not in told:
            told.add((model, name))
            yield ""
            text = _meaning(docs[name], model.model_fields[name])
            for line in textwrap.wrap(text, _WIDTH, break_on_hyphens=False):
                yield f"# {line}"
        off = "" if name in part.given else "# "
        yield f"{off}{name} = {_inline(value)}"


def _meaning(doc: str, info: FieldInfo) -> str:
    """Return the meaning of a field for a TOML file, which has no None."""
    text = doc.replace("``", "`")
    if info.default is None:
        text = re.sub(r"\b([Ii]f) None\b", r"\1 left out", text)
    kind = info.annotation
    if not isinstance(kind, type) or not issubclass(kind, Enum):
        return text
    return f"{text} One of: {', '.join(one.value for one in kind)}."


def _inline(value: object) -> str:
    """Return a value as TOML on one line."""
    match value:
        case Mapping():
            pairs = (f"{_key(name)} = {_inline(one)}" for name, one in value.items())
            return f"{{ {', '.join(pairs)} }}"
        case list():
            return f"[{', '.join(map(_inline, value))}]"
        case _:
            return tomli_w.dumps({"x": value}).removeprefix("x = ").strip()


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _inline(name)


def describe(file: Path, out: Console) -> None:
    """Print a description of a conversation file, and check the names in it."""
    conversation = load_conversation(file)
    names = ", ".join(map(one_line, conversation.names))
    plain(out, f"{one_line(str(file))}: {read_kind(file) or 'a conversation'} of {names}", "bold")
    if conversation.task:
        width = out.width - 2 if on_screen(out) else None
        plain(out, f"  {one_line(conversation.task, width)}", "dim")
    for speaker in conversation.speakers:
        by = replies(conversation, speaker)
        tools = f"; tools: {', '.join(speaker.tools)}" if speaker.tools else ""
        plain(out, one_line(f"{speaker.name}: {by}{tools}"))
    prose(out, f"Ends: {'; '.join(map(one_line, how_it_ends(conversation)))}.")
    prose(out, f"Model calls: {_describe_calls(conversation)}.")
    _check_names(conversation, out, f"{file}: ")


def _describe_calls(conversation: Conversation) -> str:
    """Return the normal number of model calls and the caps, as the rest of a sentence."""
    calls, end_chat = plain_calls(conversation), conversation.end_chat
    if calls is None:
        return UNKNOWN_CALLS
    caps = [end.describe() for end in lone(end_chat.when) if end.most_messages or end.most_calls]
    if end_chat.max_iterations is not None:
        caps.insert(0, count_of(end_chat.max_iterations, "round"))
    cap = " or ".join(caps)
    return f"normally up to {calls:,} until the cap of {cap}, plus tool calls and retries"


def _check_names(conversation: Conversation, out: Console, where: str) -> None:
    """Print whether each registered name exists. Raise SpecError if one is missing."""
    registry = Registry()
    for noun, name, is_there in registry.looked_up(conversation):
        found = "registered" if is_there else "missing"
        plain(out, one_line(f"The {noun} {name}: {found}"), "" if is_there else "yellow")
    try:
        registry.check(conversation)
    except SpecError as error:
        raise SpecError(f"{where}{error}") from error
