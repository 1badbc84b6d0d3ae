"""The kinds of conversation that have a short form, by the name they are chosen with."""

from collections.abc import Mapping

from duologue.graphs.role_play import RolePlay
from duologue.graphs.spec import Form

KINDS: Mapping[str, type[Form]] = {"role_play": RolePlay}
"""For each ``kind`` its short form."""
