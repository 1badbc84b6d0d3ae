"""The port of a local server."""

import socket

import pytest

from duologue import SpecError
from duologue.graphs.view.local_server import bind_port


def test_a_port_is_free_again_at_once_and_not_shared() -> None:
    with bind_port(0) as first:
        first.listen()
        port = first.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            answering, _ = first.accept()
            # The side that closes first keeps the port busy for a while.
            answering.close()
            with pytest.raises(SpecError, match=f"--port: {port} is not available"):
                bind_port(port)
    bind_port(port).close()
