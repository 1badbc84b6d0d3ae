"""The commands in which a person takes part: chat, answer and say.

What they need is imported inside them, as in `graphs.cli.app`.
"""

from typing import Annotated, Any

import typer

from .options import Json, ModelOption, Reset, Seed, Session, StoreOption, cap_option


def chat(
    message: Annotated[
        str | None,
        typer.Argument(metavar="MESSAGE", help="What you say first. [default: you are asked]"),
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A tool that it may call, by its registered name; repeatable."
        ),
    ] = None,
    approve: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A tool that it may call once you approve of the call; repeatable.",
        ),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The agent's system prompt.")
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="The session's id, for `duologue resume`. [default: made up]"
        ),
    ] = None,
    store: StoreOption = None,
    model: ModelOption = None,
    max_iterations: Annotated[int | None, cap_option("none")] = None,
    seed: Seed = None,
    temperature: Annotated[
        float | None, typer.Option(metavar="T", help="The temperature, 0 to 2. [default: 0.2]")
    ] = None,
    reset: Reset = False,
    as_json: Json = False,
) -> None:
    """Chat with an agent, which may call tools, until you say exit.

    Lines are read from a pipe, too. At their end, or with Ctrl-D, the session waits for you. With
    --json nobody is asked: the last event is the question, for `duologue answer`.
    """
    from ..kinds.chat import chat as make
    from .run import follow
    from .terminal.follow_up import FollowUp

    given = {
        "tools": [*dict.fromkeys([*(tool or []), *(approve or [])])],
        "interrupt_on": dict.fromkeys(approve or [], True),
        "assistant_prompt": prompt,
        "max_iterations": max_iterations,
        "seed": seed,
        "temperature": temperature,
    }
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    follow(make(message, **options), session, FollowUp(store, model), reset=reset, as_json=as_json)


def answer(
    session: Session,
    answer: Annotated[
        str,
        typer.Argument(
            metavar="ANSWER",
            help='Text where a message is asked for, "" for none; else JSON, as `duologue show` '
            "shows it. A tool's own question takes text, too.",
        ),
    ],
    question: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Which question it answers. [default: the only one that waits now]"
        ),
    ] = None,
    store: StoreOption = None,
    model: ModelOption = None,
    as_json: Json = False,
) -> None:
    """Answer what a session waits for, and go on with it.

    What it asks after that is asked here. With --json nobody is asked: the session waits again.
    """
    from .question import reply_of
    from .run import follow
    from .terminal.follow_up import FollowUp

    reply = reply_of(session, answer, question, store)
    follow(None, session, FollowUp(store, model), reset=False, as_json=as_json, reply=reply)


def say(
    session: Session,
    speaker: Annotated[str, typer.Argument(metavar="SPEAKER", help="The speaker who says it.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What is said.")],
    store: StoreOption = None,
) -> None:
    """Say something as a speaker of a session that is not running.

    It counts as that speaker's turn; `duologue resume` goes on with the next speaker.
    """
    from ..session.session import Session as Handle
    from .terminal.console import plain, stderr, stdout
    from .terminal.follow_up import FollowUp

    outcome = Handle(session, store=store).add_message(speaker, text).outcome
    plain(stdout(), f"{speaker} has said it.")
    if outcome is not None:
        plain(stderr(), str(outcome))
    else:
        plain(stderr(), FollowUp(store).hint(session))
