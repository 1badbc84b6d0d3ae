"""The kinds of conversation that have a short form."""

from typing import Final

KINDS: Final = ("blogger", "chat", "coder", "group_solve", "role_play", "simulation", "user_proxy")
"""The kinds: the names of the functions that build them."""
