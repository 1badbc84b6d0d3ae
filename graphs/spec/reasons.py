"""The reasons that a conversation ends for. When each holds is in `graphs.rules.ends`."""

from enum import StrEnum


class Reason(StrEnum):
    """Why a conversation ended, in order of precedence."""

    STOP_REQUESTED = "stop_requested"  # somebody outside asked it to stop
    QUIT = "quit"  # a person left it
    MAX_COST = "max_cost"  # the money is spent
    MAX_TOKENS = "max_tokens"  # the tokens are used up
    MAX_SECONDS = "max_seconds"  # the time is over
    MAX_CALLS = "max_calls"  # the model calls are used up
    CALL_ERRORS = "call_errors"  # too many calls in one turn could not be run
    TOOL_ERRORS = "tool_errors"  # too many calls in one turn failed in the tool
    DONE_TOKEN = "done_token"  # noqa: S105  # a speaker said the done token
    PREDICATE = "predicate"  # a registered function said so
    ENDING_TOOL = "ending_tool"  # a tool was called that ends it
    NO_CODE = "no_code"  # a speaker whose code is run wrote none
    TERMINATION = "termination"  # a termination message came, and no person wanted to go on
    COMPLETED = "completed"  # the tasks that the mode asks for are complete
    UNREADABLE_VERDICTS = "unreadable_verdicts"  # verdicts in a row could not be read
    ROLE_FLIPS = "role_flips"  # a speaker kept speaking another's part
    BLANK_REPLIES = "blank_replies"  # replies in a row were blank
    SAME_REPLIES = "same_replies"  # a speaker kept giving the same reply
    FAREWELLS = "farewells"  # messages in a row were nothing but thanks or farewells
    SAME_TOOL_CALLS = "same_tool_calls"  # a speaker kept calling a tool with equal arguments
    MAX_CONSECUTIVE_AUTO_REPLY = "max_consecutive_auto_reply"  # automatic replies for a person
    MAX_MESSAGES = "max_messages"  # the message cap is reached
    MAX_ITERATIONS = "max_iterations"  # the round cap is reached
