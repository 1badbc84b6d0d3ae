"""The exit codes of the command line."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What the command tells the shell."""

    DONE = 0, "ended by its rules"
    FAILED = 1, "an unexpected error"
    BAD_INPUT = 2, "bad input: arguments, a conversation, its file, a setting"
    MODEL = 3, "a model can't be had or did not answer"
    SESSION = 4, "a session, or the place where sessions are kept, can't be used"
    WAITING = 5, "the session waits for a person's answer"
    UNFINISHED = 6, "a batch has cells that failed, wait for a person, or were held back"
    INTERRUPTED = 130, "interrupted (Ctrl-C); the session can be resumed"
    CLOSED_PIPE = 141, "the reader of the output closed the pipe; the session can be resumed"
    TERMINATED = 143, "terminated (SIGTERM); the session can be resumed"

    meaning: str

    def __new__(cls, code: int, meaning: str = "") -> "ExitCode":
        """Make a member of its number and what it means."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member


EXIT_CODES = "\b\nExit codes:\n" + "".join(f"  {code:<4} {code.meaning}\n" for code in ExitCode)
"""What help says of them."""
