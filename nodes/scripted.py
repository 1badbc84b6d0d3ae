"""The earlier name of `duologue.nodes.testing`."""

from .testing import *  # noqa: F403
from .testing import __all__ as __all__
