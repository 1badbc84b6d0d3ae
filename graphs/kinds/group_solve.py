"""Group solve: speakers with a task each, who answer alone and then talk, after Yacana.

Each answers its own task first, unheard by the others unless that is reconciled; then one of them
is told how to begin, and all speak in turn until the end-chat mode or the round cap ends it.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Unpack

from pydantic import Field

from ..build import build_graph
from ..common.data import AtLeast, Cap, Name, Text
from ..common.errors import SpecError
from ..common.validation import near_or_all
from ..speakers.speaker import Speaker
from ..spec.changes.options import AnySpeaker, TaskOptions
from ..spec.conversation import Conversation, Form
from ..spec.end_chat import EndChat
from ..spec.judges import AnyJudge, Judge, RoundRobin, TurnOrder
from ..spec.usage import Price


class GroupSolveForm(Form):
    """The short form of a group solve; only the speakers are needed, each with a task."""

    message_field: ClassVar = "task"

    speakers: Annotated[tuple[Speaker, ...], AtLeast(2)]
    """Who takes part, in the order they speak, each with a task of its own."""
    end_chat: EndChat = EndChat()
    """How it ends."""
    shift_owner: Name | None = None
    """Who speaks first in the rounds. None: the second of the speakers."""
    shift_content: Text | None = None
    """What the first speaker is told then. None: the answer of the speaker before it; a neutral
    line where first messages are reconciled."""
    reconcile_first_message: bool = False
    """Whether all hear the tasks and opening answers of all."""
    title: Text | None = None
    """What lists of sessions show. None: the first speaker's task."""
    task: Text | None = None
    """A task of all, beside each one's own."""
    turn_order: TurnOrder = RoundRobin()
    """Who speaks next."""
    judge: AnyJudge = Judge()
    """Who is asked whether a task is complete, and how."""
    model: Text | None = None
    """The model for all that name none."""
    prices: dict[Text, Price] = Field(default_factory=dict)
    """What the models charge, by their names."""
    max_tool_rounds: Cap = 20
    """How many rounds of tool calls one turn may have."""

    def _others(self) -> dict[str, Any]:
        for number, speaker in enumerate(self.speakers):
            if speaker.task is None:
                raise SpecError(f"speakers.{number}.task: {speaker.name!r} needs a task of its own")
        names = [speaker.name for speaker in self.speakers]
        if self.shift_owner is not None and self.shift_owner not in names:
            raise SpecError(
                f"shift_owner: nobody is called {self.shift_owner!r}"
                f"{near_or_all(self.shift_owner, names)}"
            )
        end_chat = self.end_chat
        if "announce_last_words" not in end_chat.model_fields_set:
            # Yacana's speakers are told nothing of it.
            end_chat = end_chat.model_copy(update={"announce_last_words": False})
        return {
            "end_chat": end_chat,
            "opening": {
                "answers": self.own(True),
                "reconcile": self.own(self.reconcile_first_message, "reconcile_first_message"),
                "first_speaker": self.own(self.shift_owner, "shift_owner"),
                "first_line": self.own(self.shift_content, "shift_content"),
            },
        }


class GroupSolveOptions(TaskOptions, total=False):
    """What `group_solve` takes by name."""

    shift_owner: str | None
    shift_content: str | None
    reconcile_first_message: bool


def group_solve(
    speakers: Sequence[AnySpeaker], **options: Unpack[GroupSolveOptions]
) -> Conversation:
    """Make a conversation of speakers who have a task each.

    After Yacana's group solve: each speaker answers its own task alone, then the owner of the shift
    is told how to begin, and all speak in turn.

    Args:
        speakers: `Speaker`s or their fields, at least two, each with a ``task``.
        **options: Other fields of `GroupSolveForm`, such as ``end_chat``, ``shift_owner``,
            ``shift_content`` or ``reconcile_first_message``, and those of a `Conversation`, such
            as ``sandbox``.

    Returns:
        The conversation, ready for `converse`.

    Raises:
        SpecError: A field is empty, unknown or wrong; names it.

    Example:
        >>> from duologue.graphs import Speaker, group_solve
        >>> game = group_solve(
        ...     [
        ...         Speaker(name="Ann", task="Keep a secret number.", checks_completion=True),
        ...         Speaker(name="Bob", task="Guess the secret number."),
        ...     ],
        ...     end_chat={"mode": "end_chat_after_first_completion"},
        ... )
        >>> game.order
        ('Bob', 'Ann')
    """
    return GroupSolveForm.of({"speakers": speakers, **options})


graph = build_graph(form=GroupSolveForm)
"""The group solve for LangGraph's servers and Studio, which bring their own checkpointer."""
