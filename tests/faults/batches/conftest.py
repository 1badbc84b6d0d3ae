"""What the tests of batches' drivers have in common: a model's server, and who answers there."""

from collections.abc import Iterator

import pytest

from duologue.nodes.testing.server import ScriptedServer
from support.batches import Player


@pytest.fixture
def player() -> Player:
    """Who answers."""
    return Player()


@pytest.fixture
def server(player: Player) -> Iterator[ScriptedServer]:
    """The server that is asked."""
    with ScriptedServer(player) as running:
        yield running
