"""The types of compiled graphs, and of the forms that start them."""

from duologue.graphs.build import Graph as Graph
from duologue.graphs.conversation.conversation import Form as Form
from duologue.graphs.kinds.chat import ChatForm as ChatForm, UserProxyForm as UserProxyForm
from duologue.graphs.kinds.load import forms_by_kind as forms_by_kind
from duologue.graphs.kinds.role_play import (
    GroupSolveForm as GroupSolveForm,
    RolePlayForm as RolePlayForm,
)
