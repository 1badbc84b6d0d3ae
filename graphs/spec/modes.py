"""The end-chat modes: how completed tasks end a conversation."""

from enum import StrEnum


class EndChatMode(StrEnum):
    """How completed tasks end a conversation. The round cap applies to every mode (Yacana)."""

    MAX_ITERATIONS_ONLY = "max_iterations_only"
    """Rounds until the cap; nobody is asked."""
    END_CHAT_AFTER_FIRST_COMPLETION = "end_chat_after_first_completion"
    """The first completed task ends it at once."""
    ONE_LAST_CHAT_AFTER_FIRST_COMPLETION = "one_last_chat_after_first_completion"
    """The next speaker has one last message after the first completed task."""
    ONE_LAST_GROUP_CHAT_AFTER_FIRST_COMPLETION = "one_last_group_chat_after_first_completion"
    """Every speaker has one last message after the first completed task."""
    ALL_TASK_MUST_COMPLETE = "all_task_must_complete"
    """Goes on until every speaker that stops the chat has completed its task."""
