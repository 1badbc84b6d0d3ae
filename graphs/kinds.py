"""The kinds of conversation that have a short form, by the name they are chosen with."""

from collections.abc import Mapping

from duologue.graphs.blogger import Blogger
from duologue.graphs.chat import Chat
from duologue.graphs.coder import Coder
from duologue.graphs.group_solve import GroupSolve
from duologue.graphs.role_play import RolePlay
from duologue.graphs.spec import Form
from duologue.graphs.user_proxy import UserProxy

KINDS: Mapping[str, type[Form]] = {
    "role_play": RolePlay,
    "group_solve": GroupSolve,
    "blogger": Blogger,
    "coder": Coder,
    "user_proxy": UserProxy,
    "chat": Chat,
}
"""For each ``kind`` its short form."""
