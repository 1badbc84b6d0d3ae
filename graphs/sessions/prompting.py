"""What a speaker's model was sent."""

from langchain_core.messages import BaseMessage

from ...nodes.models.resolve import Models
from ...nodes.step.resources import Resources
from ...nodes.turn.sent import last_prompt
from ...tools.registry.registry import Registry
from ..build import build_graph
from ..common.errors import SessionError
from ..store.address import Store
from .checkpoints import read_states
from .session import check_speaker, known_session


async def read_prompt(
    store: Store, session: str, speaker: str, registry: Registry
) -> list[BaseMessage]:
    """Make once more what a speaker's model was sent at its newest turn."""
    conversation = await known_session(store, session)
    check_speaker(session, conversation, speaker)
    states = await read_states(build_graph(checkpointer=store.checkpointer), session)
    resources = Resources(Models(), registry, allow_host=True, allow_paths=True)
    prompt = await last_prompt(states, resources, speaker)
    if prompt is None:
        raise SessionError(f"No model has spoken for {speaker!r} in session {session!r} yet.")
    return prompt
