"""The conversation that a graph serves: its names for clients, its threads and its assistants.

The operator chooses the conversation when the graph is built. Clients send messages and write to
their threads' states, but can't change the conversation. A run's own input comes first, then the
settings of the server's assistant, then the defaults.
"""

import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Self
from unicodedata import combining, normalize

from pydantic import Field
from pydantic.fields import FieldInfo

from ..common.data import Data, ModelName, Temperature
from ..common.errors import SessionError, SpecError
from ..common.model_help import field_docs
from ..common.sanitize import excerpt
from ..common.validation import validate
from .conversation import Conversation, Form
from .fields import Prompts

FIXED: Final = ("opening",)
"""Fields of a conversation that can't change after its first message."""

FIXED_OF_SPEAKERS: Final = ("name", "private_opening", "memory")
"""Fields of each speaker that can't change after the first message either."""

_LONGEST_NAME: Final = 64
"""The maximum length of a tool's name that all providers accept, in characters."""

_NO_NAME: Final = re.compile(r"[^a-z0-9_-]+")
"""Characters that the name of a tool can't contain."""


_DIGITS: Final = 8
"""Number of digits that tell apart the names of files whose letters a name can't contain."""


def name_graph(conversation: Conversation, source: object, default: str) -> str:
    """Return the name of a conversation's graph, which is also valid as the name of a tool.

    Args:
        conversation: The conversation.
        source: Where it comes from. If it is a path, the file's name without its ending is used,
            otherwise the conversation's title or task. Letters that are not ASCII become digits
            that depend on the file's name.
        default: The name if these contain no ASCII letter or digit.
    """
    text = Path(source).stem if isinstance(source, str | Path) else ""
    letters = normalize("NFKD", text)
    if any(one.isalnum() and not one.isascii() for one in letters):
        # The remaining letters may be those of another file.
        digest = sha256(letters.casefold().encode("utf-8", "replace")).hexdigest()[:_DIGITS]
        start = _NO_NAME.sub("_", letters.casefold()).strip("_") or default
        return f"{start[: _LONGEST_NAME - _DIGITS - 1]}_{digest}"
    text = "".join(one for one in letters if not combining(one))
    texts = (text, conversation.title or "", conversation.task or "")
    words = (_NO_NAME.sub("_", one.casefold()).strip("_") for one in texts)
    return next(filter(None, words), default)[:_LONGEST_NAME].strip("_")


def describe_graph(conversation: Conversation) -> str:
    """Return a description of a conversation for clients: its title or task, and who speaks."""
    about = (conversation.title or conversation.task or "").strip()
    who = " and ".join((", ".join(conversation.names[:-1]), conversation.names[-1]))
    end = "." if about[-1:].isalnum() else ""
    return f"{about}{end} A conversation of {who}." if about else f"A conversation of {who}."


def describe_messages(conversation: Conversation) -> str:
    """Return a description of what a client's message means for a conversation."""
    if conversation.people:
        return f"The next message of {' or '.join(conversation.people)}."
    own = f" If there is no message: {conversation.task}" if conversation.task else ""
    return f"The task, as the user's message.{own}"


def first_argument(conversation: Conversation) -> str | None:
    """Return the argument that starts a conversation as a tool: ``task`` or ``message``.

    None if several people take part.
    """
    return {0: "task", 1: "message"}.get(len(conversation.people))


def describe_argument(conversation: Conversation, argument: str) -> str:
    """Return the description of the argument that starts a conversation as a tool."""
    if argument == "message":
        return f"The first message of {excerpt(conversation.people[0])}."
    own = "conversation's own task" if conversation.task else "speakers' own tasks"
    return f"The task. Default: the {own}."


def describe_tool(conversation: Conversation) -> str:
    """Return the title, the task and the speakers of a conversation, in one line."""
    about = describe_graph(conversation)
    if conversation.title and conversation.task:
        about = f"{about} Task: {conversation.task}"
    return excerpt(about, _LONGEST_DESCRIPTION)


_LONGEST_DESCRIPTION: Final = 300
"""Maximum length of a tool's description in characters, so that a tool stays below 2 KB."""


def check_host(
    conversation: Conversation,
    remedy: str = "choose another level, or build the graph with allow_host=True",
) -> None:
    """Refuse a conversation whose code runs without a sandbox.

    Args:
        conversation: The conversation.
        remedy: How the operator can serve the conversation.

    Raises:
        SpecError: Its sandbox level is ``host``.
    """
    if conversation.sandbox.level == "host":
        raise SpecError(
            "sandbox.level: 'host' is not allowed here, because code would run unprotected; "
            f"{remedy}"
        )


def continue_served(served: Conversation, stored: Conversation) -> Conversation:
    """Return the conversation of a thread that continues: the served one, with the thread's task.

    Args:
        served: The conversation of the graph.
        stored: The conversation in the thread's state. The graph may have been built with another
            version of its conversation since then, and clients can write the state.

    Raises:
        SessionError: The stored messages do not fit the served conversation, because its speakers
            or its opening have changed.
    """
    differs = _first_unfit(served, stored)
    if differs is not None:
        raise SessionError(
            f"this thread began with another conversation: {differs} differs; start a new thread"
        )
    # If a person takes part, a message is never the task.
    is_own = not served.people and stored.task
    return served.model_copy(update={"task": stored.task}) if is_own else served


def _first_unfit(served: Conversation, stored: Conversation) -> str | None:
    """Return the first fixed field in which two conversations differ, or None."""
    for field in FIXED:
        if getattr(served, field) != getattr(stored, field):
            return field
    if len(served.speakers) != len(stored.speakers):
        return "speakers"
    for number, pair in enumerate(zip(served.speakers, stored.speakers, strict=True)):
        for field in FIXED_OF_SPEAKERS:
            if getattr(pair[0], field) != getattr(pair[1], field):
                return f"speakers.{number}.{field}"
    return None


class AssistantSettings(Data):
    """The settings that apply to every kind of conversation."""

    model: ModelName | None = None
    """The model of all speakers, judges and requests that name none. Not set if None."""
    temperature: Temperature = None
    """The temperature of all speakers that set none. Not set if None."""
    prompts: Prompts = Field(default_factory=dict)
    """Replacements for prompts, by the prompts' names."""

    @classmethod
    def of(cls, context: object) -> Self:
        """Read the settings from a run's context, and ignore its other entries."""
        return validate(cls, _pick(context, cls.model_fields), "context.")

    def applied_to(self, conversation: Conversation) -> Conversation:
        """Apply the settings to the fields that a conversation does not set."""
        if not self.model_fields_set:
            return conversation
        update: dict[str, Any] = {"prompts": self.prompts | conversation.prompts}
        if conversation.model is None:
            update["model"] = self.model
        if self.temperature is not None:
            own = {"temperature": self.temperature}
            update["speakers"] = tuple(
                speaker
                if speaker.model_settings.temperature is not None
                else speaker.model_copy(
                    update={"model_settings": speaker.model_settings.model_copy(update=own)}
                )
                for speaker in conversation.speakers
            )
        return validate(Conversation, dict(conversation) | update)


def settings_of(form: type[Form] | None) -> dict[str, FieldInfo]:
    """Return the settings of a graph's assistants: common settings, and the form's prompts."""
    fields = AssistantSettings.model_fields
    for name, text in field_docs(AssistantSettings).items():
        fields[name].description = text
    return fields | (role_prompts(form) if form else {})


def role_prompts(form: type[Form]) -> dict[str, FieldInfo]:
    """Return the fields of a form that are system prompts."""
    return {name: info for name, info in form.model_fields.items() if name.endswith("_prompt")}


def prompts_set(form: type[Form], context: object) -> dict[str, Any]:
    """Return the system prompts that a run's context sets."""
    return _pick(context, role_prompts(form))


def _pick(context: object, names: Mapping[str, object]) -> dict[str, Any]:
    given = context if isinstance(context, Mapping) else {}
    return {name: given[name] for name in names if given.get(name) is not None}
