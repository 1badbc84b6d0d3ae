"""The kinds of conversation that have a short form, by the name they are chosen with."""

from collections.abc import Mapping

from ..spec.conversation import Form
from .blogger import Blogger
from .chat import Chat
from .coder import Coder
from .group_solve import GroupSolve
from .role_play import RolePlay
from .user_proxy import UserProxy

KINDS: Mapping[str, type[Form]] = {
    "role_play": RolePlay,
    "group_solve": GroupSolve,
    "blogger": Blogger,
    "coder": Coder,
    "user_proxy": UserProxy,
    "chat": Chat,
}
"""For each ``kind`` its short form."""
