"""What a speaker's model was sent."""

from pathlib import Path
from typing import Unpack

from langchain_core.messages import BaseMessage

from ...nodes.models.resolve import Models
from ...nodes.step.resources import Resources
from ...nodes.turn.sent import last_prompt
from ...tools.registry.registry import Registered, Registry, check_options
from ..build import build_graph
from ..common.background import in_background
from ..common.errors import SessionError
from ..store.rows import check_session_id
from .checkpoints import read_states
from .listing import known_store
from .session import check_speaker, known_session


async def aget_prompt(
    session: str,
    speaker: str,
    *,
    store: str | Path | None = None,
    **registered: Unpack[Registered],
) -> list[BaseMessage]:
    """Show what a speaker's model was sent at its newest turn.

    That is the system prompt and what the speaker remembers, shortened by its context policy, with
    the instructions of this turn. The embedded model is sent the speaker's `SmallModelPrompt`. No
    prompt is stored: it is made once more from the session's steps. The definitions of tools are
    not part of it if the endpoint takes them apart from the messages.

    Args:
        session: The session's id.
        speaker: The speaker's name.
        store: Where sessions are kept. None: the setting, else the user's data folder.
        **registered: What was registered for the run, as for `converse`, where the prompt tells of
            it: the schema of the speaker's format, or tools beside a limit in tokens.

    Returns:
        LangChain messages, the system prompt first.

    Raises:
        SpecError: Nobody has that name, or something registered is missing.
        SessionError: There is no such session, or no model has spoken for the speaker.
        StoreError: The store can't be opened or read.

    Example:
        >>> from duologue.graphs import converse, get_prompt, role_play
        >>> from duologue.nodes.testing import ScriptedChatModel
        >>> garden = role_play("Plan", "Owner", "Gardener", specify_task=False, max_iterations=1)
        >>> script = ["Instruction: Dig.", "Solution: Dug. Next request."]
        >>> model = ScriptedChatModel(script=script)
        >>> result = converse(garden, session="sent", model=model, store="memory:docs")
        >>> get_prompt("sent", "Owner", store="memory:docs")[-1].text
        'Give the first instruction.'
    """
    check_session_id(session)
    check_options(registered, Registered)
    async with known_store(store) as opened:
        conversation = await known_session(opened, session)
        check_speaker(session, conversation, speaker)
        states = await read_states(build_graph(checkpointer=opened.checkpointer), session)
    resources = Resources(Models(), Registry(registered), allow_host=True, allow_paths=True)
    prompt = await last_prompt(states, resources, speaker)
    if prompt is None:
        raise SessionError(f"No model has spoken for {speaker!r} in session {session!r} yet.")
    return prompt


get_prompt = in_background(aget_prompt)
