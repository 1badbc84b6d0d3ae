"""Player for the conversations of docs/gallery.md, with scripted replies; writes their pages.

Usage: python docs/gallery/play.py FOLDER
"""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

from duologue import Conversation, Result, Session, converse, load_conversation
from duologue.nodes.testing import ScriptedChatModel
from replies import ANSWERS, REPLIES

PAGE: Final = Path(__file__).parent.with_suffix(".md")


def conversations() -> dict[str, Conversation]:
    """Return the conversations on the page, by name (the heading as links write it)."""
    sections = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
    return {name_of(section.partition("\n")[0]): _read(section) for section in sections}


def name_of(heading: str) -> str:
    """Return the name of the conversation under this heading."""
    return heading.lower().replace(" ", "-")


def _read(section: str) -> Conversation:
    ((language, text),) = re.findall(r"^```(\w+)\n(.*?)^```$", section, re.M | re.S)
    if language == "toml":
        return load_conversation(tomllib.loads(text))
    names: dict[str, Any] = {}
    exec(compile(text, PAGE.name, "exec"), names)  # noqa: S102  # our own page
    found: Conversation = names["conversation"]
    return found


def play(name: str, conversation: Conversation, store: str) -> Result:
    """Run a conversation to its end, in a session with its name."""
    model, answers = ScriptedChatModel(REPLIES[name]), iter(ANSWERS.get(name, ()))
    return converse(
        conversation,
        session=name,
        store=store,
        model=model,
        models={conversation.model: model} if conversation.model else {},
        answer=lambda question: next(answers),
    )


def write_pages(folder: Path) -> None:
    """Write the page of each conversation."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, conversation in conversations().items():
        play(name, conversation, store := f"memory:{name}")
        page = Session(name, store=store).export(format="html")
        (folder / f"{name}.html").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
