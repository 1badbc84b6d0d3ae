"""Group solve: speakers with a task each, who answer alone and then talk, after Yacana.

Each answers its own task first, unheard by the others unless that is reconciled; then one of them
is told how to begin, and all speak in turn until the end-chat mode or the round cap ends it.
"""

from collections.abc import Sequence
from typing import Annotated, Final, Unpack, cast

from ..build import build_graph
from ..common.data import AtLeast, Name, Text
from ..common.errors import SpecError
from ..common.validation import suggest_near_or_all
from ..conversation.conversation_options import AnySpeaker, OptionsBesideEndChat, ReadAs
from ..conversation.defaults import mark_default
from ..ends.end_chat import AnyEndChat, EndChat
from ..speakers.speaker import Speaker
from .short_form import Parts, form_of, short_form

_AS_ALWAYS: Final = EndChat()


@short_form(
    message="task",
    shown=["title", "turn_order", "judge", "prices", "max_tool_rounds"],
    example={"title": "A number to be found"},
    example_options={
        "shift_owner": "Ben",
        "shift_content": "Make your first guess.",
        "reconcile_first_message": True,
    },
)
def group_solve(
    speakers: Annotated[Sequence[AnySpeaker], ReadAs(Annotated[tuple[Speaker, ...], AtLeast(2)])],
    *,
    shift_owner: Name | None = None,
    shift_content: Text | None = None,
    reconcile_first_message: bool = False,
    task: Text | None = None,
    end_chat: Annotated[AnyEndChat, ReadAs(EndChat)] = _AS_ALWAYS,
    **options: Unpack[OptionsBesideEndChat],
) -> Parts:
    """Make a conversation of speakers who have a task each.

    After Yacana's group solve: each speaker answers its own task alone, then the owner of the shift
    is told how to begin, and all speak in turn.

    Args:
        speakers: The speakers or their fields, in the order they speak: at least two, each with a
            ``task`` of its own.
        shift_owner: The name of the first to speak in the rounds. None: the second of the speakers.
        shift_content: What the first speaker is told then. None: the answer of the speaker before
            it; a neutral line if first messages are reconciled.
        reconcile_first_message: Whether all hear the tasks and opening answers of all.
        task: A task of all, beside each one's own.
        end_chat: How it ends.
        **options: Other fields of a `Conversation`, such as ``judge``, ``model`` or ``sandbox``.

    Returns:
        The conversation, ready for `converse`.

    Raises:
        SpecError: A field is empty, unknown or wrong; names it.

    Example:
        >>> from duologue import Speaker, group_solve
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
    found = cast("Sequence[Speaker]", speakers)
    for number, speaker in enumerate(found):
        if speaker.task is None:
            raise SpecError(f"speakers.{number}.task: {speaker.name!r} needs a task of its own")
    names = [speaker.name for speaker in found]
    if shift_owner is not None and shift_owner not in names:
        raise SpecError(
            f"shift_owner: nobody is called {shift_owner!r}"
            f"{suggest_near_or_all(shift_owner, names)}"
        )
    ending = cast("EndChat", end_chat)
    if "announce_last_words" not in ending.model_fields_set:
        # Yacana's speakers are told nothing of it.
        ending = ending.model_copy(update={"announce_last_words": False})
    return {
        "end_chat": ending,
        "opening": {
            "answers": mark_default(True),
            "reconcile": mark_default(reconcile_first_message, "reconcile_first_message"),
            "first_speaker": mark_default(shift_owner, "shift_owner"),
            "first_line": mark_default(shift_content, "shift_content"),
        },
    }


GroupSolveForm = form_of(group_solve)

graph = build_graph(form=GroupSolveForm)
"""The group solve for LangGraph's servers and Studio, which bring their own checkpointer."""
