"""The command that compares two runs of a suite of scenarios.

The command imports its modules inside its function, as in `graphs.cli.app`.
"""

from typing import Annotated

import typer

from .options import Json, StoreOption

_Run = "The name of a run of `duologue simulate`"


def compare(
    before: Annotated[
        str, typer.Argument(metavar="BEFORE", help=f"{_Run}, with the earlier agent.")
    ],
    after: Annotated[str, typer.Argument(metavar="AFTER", help=f"{_Run}, with the changed agent.")],
    store: StoreOption = None,
    as_json: Json = False,
) -> None:
    """Compare two runs of `duologue simulate`, scenario by scenario. New failures come first.

    The exit code is 1 if the agent became significantly worse.
    """
    from .run_suite import compare_here

    compare_here(before, after, store, as_json=as_json)
