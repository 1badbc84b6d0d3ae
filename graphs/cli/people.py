"""The commands in which a person takes part: chat, answer and say.

Each command imports its modules inside its function, as in `graphs.cli.app`.
"""

from .follow_up import FollowUp
from .options import (
    select_set,
)


def chat(
    message: str | None = None,
    tool: list[str] | None = None,
    tools: list[str] | None = None,
    approve: list[str] | None = None,
    prompt: str | None = None,
    attach: list[str] | None = None,
    session: str | None = None,
    store: str | None = None,
    model: str | None = None,
    max_iterations: int | None = None,
    seed: int | None = None,
    temperature: float | None = None,
    reset: bool = False,
    as_json: bool = False,
) -> None:
    """Chat with an agent, which may call tools, until you enter exit.

    Your messages can also come from a pipe. At the end of the pipe, or after Ctrl-D, the session
    waits for you.
    With --json, no question is asked. The last event contains it; `duologue answer` answers it.

    Options:
        message (MESSAGE): Your first message. [default: you are asked for it]
        tool (--tool NAME): The name of an installed tool that the agent may call. Repeatable.
        tools (--tools MODULE): A Python module with tools that the agent may call, or one tool as
            MODULE:NAME. Repeatable.
        approve (--approve NAME): The name of a tool whose calls wait for your approval. Repeatable.
        prompt (--prompt TEXT): The agent's system prompt.
        session (--session ID): The session's id. `duologue resume` needs it later. [default: a new
            id]
        max_iterations (--max-iterations N): [default: none]

    Examples:
        duologue chat "What is 17 * 23?" --tool calculator
        duologue chat "What does this plan show?" --attach plan.png
        duologue chat "Refund order 1042" --tools shop --approve refund
    """
    from ...tools.registry.functions import import_tools
    from ..common.content import make_content
    from ..common.content_input import read_files
    from ..kinds.chat import chat as make
    from .run import follow

    imported = [one.name for one in import_tools(tools or (), "--tools")]
    options = select_set(
        tools=[*dict.fromkeys([*imported, *(tool or []), *(approve or [])])],
        interrupt_on=dict.fromkeys(approve or [], True),
        assistant_prompt=prompt,
        max_iterations=max_iterations,
        seed=seed,
        temperature=temperature,
    )
    files = read_files(attach, "--attach") if attach else []
    follow(
        make(None if files else message, **options),
        session,
        FollowUp(store, model, tools or ()),
        reset=reset,
        as_json=as_json,
        message=make_content(message or "", files) if files else None,
    )


def answer(
    session: str,
    answer: str,
    question: str | None = None,
    attach: list[str] | None = None,
    store: str | None = None,
    model: str | None = None,
    tools: list[str] | None = None,
    as_json: bool = False,
) -> None:
    """Answer the question of a waiting session, and continue it.

    Further questions are asked in the terminal. With --json no question is asked: the session waits
    again.

    Options:
        answer (ANSWER): Your message, or "" for none. A question about tool calls needs JSON, as in
            the command that `duologue show` prints. A question that a tool asks accepts JSON or
            text.
        question (--question ID): The question to answer. [default: the only open one]

    Examples:
        duologue answer garden "Tomatoes, please."
        duologue answer refund-1 --tools shop '{"decisions": [{"type": "approve"}]}'
    """
    from .sessions import require_session

    require_session(session, store)
    from ..common.content_input import read_files
    from .questions import reply_of
    from .run import follow

    files = read_files(attach, "--attach") if attach else []
    reply = reply_of(session, answer, question, store, files)
    follow_up = FollowUp(store, model, tools or ())
    follow(None, session, follow_up, as_json=as_json, reply=reply)


def say(
    session: str,
    speaker: str,
    text: str,
    attach: list[str] | None = None,
    store: str | None = None,
) -> None:
    """Add a message of a speaker to a session that is not running.

    It counts as that speaker's turn. `duologue resume` continues with the next speaker.

    Options:
        speaker (SPEAKER): The speaker of the message.
        text (TEXT): The message.

    Examples:
        duologue say garden Cook "And the herbs?"
        duologue resume garden
    """
    from .sessions import require_session
    from .terminal.console import plain, stderr, stdout

    row = require_session(session, store)
    from ..common.content import make_content
    from ..common.content_input import read_files
    from ..session.session import Session as Handle

    files = read_files(attach, "--attach") if attach else []
    handle = Handle(session, store=store)
    outcome = handle.add_message(speaker, make_content(text, files)).outcome
    plain(stdout(), f"Added the message of {speaker}.")
    if outcome is not None:
        plain(stderr(), str(outcome))
    else:
        plain(stderr(), FollowUp(store).for_session(row).hint(session))
