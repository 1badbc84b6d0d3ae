"""Group solve: speakers with their own tasks answer alone and then talk, after Yacana.

Each speaker answers its own task first. The others do not hear the answers, unless they are
reconciled. Then one speaker receives an instruction to begin, and all speak in turn until the
end-chat mode or the round cap ends the conversation.
"""

from collections.abc import Sequence
from typing import Annotated, Final, Unpack, cast

from ..common.data import AtLeast, Name, Text
from ..common.errors import SpecError, suggest_near_or_all
from ..conversation.conversation_options import (
    AnySpeaker,
    OptionsBesideEndChat,
    ReadAs,
    mark_default,
)
from ..ends.end_chat import AnyEndChat, EndChat
from ..speakers.speaker import Speaker
from .short_form import Parts, form_of, short_form

_AS_ALWAYS: Final = EndChat()


@short_form(
    message="task",
    shown=["title", "turn_order", "judge", "prices", "max_tool_rounds"],
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
    """Build a conversation of speakers that each have their own task.

    After Yacana's group solve: each speaker answers its own task alone, then the first speaker of
    the rounds (the shift owner) receives an instruction to begin, and all speak in turn.

    Args:
        speakers: The speakers or their fields, in the order of a round: at least two, each with its
            own ``task``.
        shift_owner: The name of the first speaker in the rounds. If None, the second of the
            speakers.
        shift_content: The instruction to the first speaker in the rounds. If None, the answer of
            the speaker before it, or a neutral line with ``reconcile_first_message``.
        reconcile_first_message: Whether all speakers hear the tasks and opening answers of all
            speakers.
        task: A task of all speakers, in addition to their own tasks.
        end_chat: The end conditions and guards.
        **options: Other fields of a `Conversation`, such as ``judge``, ``model`` or ``sandbox``.

    Returns:
        The conversation, ready for `converse`.

    Raises:
        SpecError: A field is empty, unknown or wrong; the message names it.

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
            raise SpecError(f"speakers.{number}.task: is missing; set a task for {speaker.name!r}")
    names = [speaker.name for speaker in found]
    if shift_owner is not None and shift_owner not in names:
        raise SpecError(
            f"shift_owner: no speaker is called {shift_owner!r}"
            f"{suggest_near_or_all(shift_owner, names)}"
        )
    ending = cast("EndChat", end_chat)
    if "announce_last_words" not in ending.model_fields_set:
        # Yacana does not announce last words to its speakers.
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
