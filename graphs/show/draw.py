"""Drawings of conversations as Mermaid, SVG and PNG, made without a network."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..common.errors import SpecError, how_to_install
from ..common.sanitize import clean
from ..common.validation import list_names
from ..conversation.conversation import Conversation
from ..conversation.judges import SeparateJudge, TurnFunction
from ..ends.end import Strength, lone
from ..kinds.load import load_conversation
from ..log.metadata import Stage
from ..rules.turns import never_asked
from ..speakers.speaker import Speaker
from .conversation_paths import Kind, Place, Way, ways

MERMAID: Final = (".mmd", ".mermaid", ".md")
"""The endings of files that contain Mermaid. In Markdown, the drawing is inside a fence."""

_PICTURES: Final = (".svg", ".png")

_MOST = 5
"""Maximum number of tools that are named. For the others, only their number is shown."""

_LONGEST = 60


def draw(
    conversation: Conversation | Mapping[str, Any] | str | Path, file: str | Path | None = None
) -> str:
    """Draw the order of a conversation's steps: its speakers, its judge and its end conditions.

    No model is called. Only steps that this conversation can take are drawn.

    Args:
        conversation: The conversation, or a dict or a file that contains one.
        file: The file to write. A ``.svg`` or ``.png`` file needs the extra ``pictures``; a
            ``.mmd`` file contains Mermaid. If None, no file is written.

    Returns:
        The drawing as Mermaid.

    Raises:
        SpecError: The conversation is invalid, the format is unknown, the extra is missing, or
            the file can't be written.

    Example:
        >>> from duologue import draw, role_play
        >>> print(draw(role_play("Plan a garden", "Owner", "Gardener")).splitlines()[0])
        flowchart TD
    """
    if not isinstance(conversation, Conversation):
        conversation = load_conversation(conversation)
    text = mermaid(conversation)
    if file is not None:
        _write(text, Path(file))
    return text


def _write(text: str, file: Path) -> None:
    form = file.suffix.lower()
    if form not in (*MERMAID, *_PICTURES):
        raise SpecError(
            f"{file}: unknown format; end the name in {list_names([*_PICTURES, MERMAID[0]])}"
        )
    if form in MERMAID:
        data = (f"```mermaid\n{text}```\n" if form == ".md" else text).encode()
    else:
        data = _rendered(text, file)
    try:
        file.write_bytes(data)
    except OSError as error:
        raise SpecError(f"{file}: can't be written: {error.strerror or error}") from error


def _rendered(text: str, file: Path) -> bytes:
    form = file.suffix.lower()
    try:
        import mermaidx  # type: ignore[import-untyped]  # an extra, and it takes a while
    except ImportError as error:
        raise SpecError(
            f"{file}: {form} files need more packages; {how_to_install('pictures')}, or write a "
            ".mmd file"
        ) from error
    picture = mermaidx.render(text)
    found = picture.svg() if form == ".svg" else picture.png(scale=2.0)
    return found.encode() if isinstance(found, str) else bytes(found)


def mermaid(conversation: Conversation) -> str:
    """Return the drawing of a conversation as Mermaid."""
    found = _joined(ways(conversation))
    ids: dict[Place, str] = {}
    for way in found:
        for place in (way.start, way.to):
            ids.setdefault(place, f"n{len(ids)}")
    lines, looks = ["flowchart TD"], set()
    for place, name in ids.items():
        before, behind, look = _SHAPES[place.kind]
        if place.kind is Kind.SPEAKER and _is_person(conversation, place.speaker or ""):
            look = "person"
        looks.add(look)
        label = "<br/>".join(map(_escaped, _label(conversation, place)))
        lines.append(f'    {name}{before}"{label}"{behind}:::{look}')
    for start, to, when in found:
        label = f'|"{_escaped(when)}"|' if when else ""
        lines.append(f"    {ids[start]} -->{label} {ids[to]}")
    lines += [f"    classDef {name} {style}" for name, style in _LOOKS.items() if name in looks]
    return "\n".join(lines) + "\n"


_SHAPES: Final[Mapping[Kind, tuple[str, str, str]]] = {
    Kind.START: ("([", "])", "edge"),
    Kind.TASK: ("[", "]", "helper"),
    Kind.SPEAKER: ("(", ")", "speaker"),
    Kind.TOOLS: ("[[", "]]", "helper"),
    Kind.CODE: ("[[", "]]", "helper"),
    Kind.JUDGE: ("{{", "}}", "judge"),
    Kind.CHOICE: ("{{", "}}", "judge"),
    Kind.END: ("(", ")", "edge"),
}
"""For each kind of place the brackets around its label, and its style."""

_LOOKS: Final = {
    "edge": "fill:#f3f4f6,stroke:#6b7280,color:#111827",
    "speaker": "fill:#e0ecff,stroke:#3b6fd4,color:#111827",
    "person": "fill:#fdeccf,stroke:#c98a1b,color:#111827",
    "helper": "fill:#ffffff,stroke:#9ca3af,color:#111827",
    "judge": "fill:#e9f7ec,stroke:#3c9a55,color:#111827",
}


def _joined(found: list[Way]) -> list[Way]:
    """Return one way for each pair of places, with all its conditions."""
    conditions: dict[tuple[Place, Place], dict[str, None]] = {}
    for way in found:
        conditions.setdefault((way.start, way.to), {})[way.when] = None
    return [
        Way(start, to, "" if "" in when or {*when} == {"yes", "no"} else " or ".join(when))
        for (start, to), when in conditions.items()
    ]


def _label(conversation: Conversation, place: Place) -> list[str]:
    """Return the lines of a place's label."""
    match place.kind:
        case Kind.START:
            return ["Start"]
        case Kind.TASK:
            return ["The task is made more specific"]
        case Kind.TOOLS:
            tools = conversation.speaker(place.speaker or "").tools
            more = len(tools) - _MOST
            return ["Tools", *tools[:_MOST], *([f"and {more} more"] if more > 0 else [])]
        case Kind.CODE:
            return ["Sandbox", " and ".join(conversation.sandbox.languages)]
        case Kind.JUDGE:
            judge = conversation.judge
            if isinstance(judge, SeparateJudge):
                many = len(judge.criteria)
                return ["The judge", f"are all {many} criteria met?" if many > 1 else "is it met?"]
            return [f"Is the task of {place.speaker} complete?"]
        case Kind.CHOICE:
            order = conversation.turn_order
            who = f"{order.name}()" if isinstance(order, TurnFunction) else order.kind.capitalize()
            return [who, "who speaks next?"]
        case Kind.END:
            return ["The end", *_at_any_time(conversation)]
        case Kind.SPEAKER:
            return _speaker(conversation, place)


_STAGES: Final = {
    Stage.PRIVATE: "in private",
    Stage.OPENING: "opening, on its own task",
    Stage.LAST_WORDS: "last words",
}


def _is_person(conversation: Conversation, name: str) -> bool:
    return conversation.speaker(name).human is not None and not never_asked(conversation, name)


def _speaker(conversation: Conversation, place: Place) -> list[str]:
    name = place.speaker or ""
    if place.stage in _STAGES:
        return [name, _STAGES[place.stage]]
    return [name, replies(conversation, conversation.speaker(name))]


def replies(conversation: Conversation, speaker: Speaker) -> str:
    """Describe in a few words the sources of a speaker's replies, without its first message."""
    said = {
        "human": "a person" if _is_person(conversation, speaker.name) else "",
        "function": "a function",
        "agent": "an agent",
        "conversation": "an inner conversation",
        "code": "code that it runs",
        "model": speaker.model or conversation.model or "a model",
        "text": "a text",
    }
    given = [said[reply.kind] for reply in speaker.replies[speaker.first_message is not None :]]
    return " or ".join(filter(None, dict.fromkeys(given)))


def _at_any_time(conversation: Conversation) -> list[str]:
    """Return the end conditions that may be met at any time, one per line."""
    budgets = [
        end.describe()
        for end in lone(conversation.end_chat.when)
        if end.strength is Strength.HARD and not end.works_unnamed
    ]
    end_chat = conversation.end_chat
    has_guards = end_chat.on_guard == "end" and any(end_chat.guards.model_dump().values())
    others = [*budgets, *(["a guard"] if has_guards else []), "a request to stop"]
    return ["or at any time:", *others]


def _escaped(text: str) -> str:
    """Escape a text so that Mermaid reads no syntax in it."""
    line = " ".join(clean(text).split())
    line = line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
    return "".join(
        sign if sign.isalnum() or sign in _HARMLESS else f"#{ord(sign)};" for sign in line
    )


_HARMLESS: Final = " ,.:!?'()/+-_…"
