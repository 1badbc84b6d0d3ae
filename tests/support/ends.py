"""The types of ends and of their combinations."""

from duologue.graphs.ends.end import (
    AllOf as AllOf,
    AnyOf as AnyOf,
    BaseEnd as BaseEnd,
    End as End,
    leaves as leaves,
)
from duologue.graphs.ends.end_chat import AnyEndChat as AnyEndChat
