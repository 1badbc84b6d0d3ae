"""The graphs of the short forms. LangGraph's servers and Studio supply the checkpointer."""

from .build import build_graph
from .kinds.chat import ChatForm, UserProxyForm
from .kinds.coder import BloggerForm, CoderForm
from .kinds.role_play import GroupSolveForm, RolePlayForm
from .kinds.simulation import SimulationForm

role_play = build_graph(form=RolePlayForm)
group_solve = build_graph(form=GroupSolveForm)
blogger = build_graph(form=BloggerForm)
coder = build_graph(form=CoderForm)
user_proxy = build_graph(form=UserProxyForm)
chat = build_graph(form=ChatForm)
simulation = build_graph(form=SimulationForm)
