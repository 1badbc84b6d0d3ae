"""The public names."""

from .graphs import *

__version__: str
