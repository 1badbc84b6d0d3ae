"""Public names of `duologue`."""

from .graphs import *

__version__: str
