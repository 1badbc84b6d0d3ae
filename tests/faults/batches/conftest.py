"""Fixtures for the tests of batch drivers: a model's server and the player that answers there."""

from collections.abc import Iterator

import pytest

from duologue.nodes.testing.server import ScriptedServer
from support.batches import Player


@pytest.fixture
def player() -> Player:
    """Return the player that answers."""
    return Player()


@pytest.fixture
def server(player: Player) -> Iterator[ScriptedServer]:
    """Yield the server that the drivers call."""
    with ScriptedServer(player) as running:
        yield running
