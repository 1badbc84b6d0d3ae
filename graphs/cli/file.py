"""The commands that write, check and draw conversation files.

Each command imports its modules inside its function, as in `graphs.cli.app`.
"""

from pathlib import Path
from typing import Annotated

import typer

from ..common.errors import SpecError
from ..kinds import list_kinds
from .options import OutputOption

_File = Annotated[
    Path, typer.Argument(metavar="FILE", help="A .toml or .json file with a conversation.")
]

_SUFFIX = ".toml"


def init(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            help=f"The kind of sample: {', '.join(list_kinds())}; conversation, which lists every "
            f"field; or batch, for `duologue batch run`. [default: role_play]",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="The file to write. [default: KIND.toml]"),
    ] = None,
) -> None:
    """Write a sample conversation to a TOML file, with comments.

    An existing file is not overwritten.
    """
    if kind is not None and file is None and kind.endswith(_SUFFIX):
        file, kind = Path(kind), None
    from .file_template import read_sample
    from .terminal.console import plain, stderr, stdout
    from .terminal.follow_up import FollowUp

    kind = kind or "role_play"
    text = read_sample(kind)
    file = file or Path(f"{kind}{_SUFFIX}")
    if file.suffix.lower() != _SUFFIX:
        raise SpecError(f"{file}: the name must end in {_SUFFIX}")
    try:
        with file.open("xb") as new:
            new.write(text.encode())
    except FileExistsError:
        raise SpecError(f"{file}: already exists; name another file") from None
    except OSError as error:
        raise SpecError(f"{file}: can't be written: {error.strerror or error}") from error
    plain(stdout(), str(file))
    run = "batch run" if kind == "batch" else "run"
    plain(stderr(), f"Edit it, then run it with: {FollowUp().command(run, str(file))}")


def check(file: _File) -> None:
    """Check a conversation file and describe it. No model is called."""
    from .file_template import describe
    from .terminal.console import stdout

    describe(file, stdout())


def graph(file: _File, output: OutputOption = None) -> None:
    """Draw the possible turns and ends of a conversation.

    The drawing is printed as Mermaid. With --output it is written as .svg, .png or .mmd, by the
    ending of the file's name.
    """
    from ..show.draw import draw

    text = draw(file, output)
    if output is None:
        typer.echo(text.encode(), nl=False)
