"""The prompts of the package, by the names of their files."""

import re
from pathlib import Path

import duologue

_FOLDER = Path(duologue.__file__).with_name("graphs") / "prompts" / "texts"

PROMPTS = {
    file.stem: file.read_text(encoding="utf-8").rstrip("\n") for file in _FOLDER.glob("*.txt")
}
"""The prompts of every kind of conversation."""

KIND_PROMPTS = {
    file.stem: file.read_text(encoding="utf-8").rstrip("\n") for file in _FOLDER.glob("kinds/*.txt")
}
"""The prompts of single kinds of conversation, such as a role-play."""


def fill(prompt: str, **values: object) -> str:
    """Return a prompt with these values in its placeholders."""
    return re.sub(r"\{(\w+)\}", lambda found: str(values.get(found[1], found[0])), prompt)
