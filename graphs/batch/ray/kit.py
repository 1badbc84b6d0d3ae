"""What the workers of a batch are given, wherever they run."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from ray import cloudpickle

from ...common.errors import SpecError
from ...common.sanitize import excerpt
from ...common.settings import variables
from ...run.options import Options
from ...store.address import Store
from ...store.batches import BatchLease
from ..scores.score import ScoreFunction
from ..spec import BatchLimits
from ..worker import Worker


@dataclass(frozen=True, repr=False)
class Kit:
    """What all workers of a batch have in common. It holds secrets, and is shown nowhere."""

    batch: str
    """The batch's name."""
    lease: tuple[str, int]
    """The owner and the number of the driver's lease on the batch."""
    store: str
    """The address of its store, with its password."""
    limits: BatchLimits
    options: Options
    scores: Mapping[str, ScoreFunction]
    environment: Mapping[str, str | None]
    """The variables of the environment that settings and keys are read from. None: not set."""

    def share_lease(self, store: Store) -> BatchLease:
        """Return the driver's lease, for what this process writes to the batch."""
        return store.share_batch_lease(self.batch, *self.lease)

    def unpack(self) -> None:
        """Set the environment of this process."""
        for name, value in self.environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def packed(worker: Worker, limits: BatchLimits) -> Kit:
    """Pack what a worker has, for others like it.

    Raises:
        SpecError: An option can't be sent to another process; names it.
    """
    url, target = worker.store.url, worker.options.get("store")
    # The address of a database as it was given: the other lacks its password.
    store = url if url.startswith("sqlite:") else str(target)
    options: Options = {**worker.options, "store": store}
    for name, value in options.items():
        _check(name, value)
    for name, function in worker.scores.items():
        _check(f"scores.{name}", function)
    keys = {name: value for name, value in os.environ.items() if _is_of_a_model(name)}
    environment = {**keys, **variables()}
    batch, (_, owner, number) = worker.lease.batch, worker.lease.lease.terms
    return Kit(batch, (owner, number), store, limits, options, worker.scores, environment)


def _is_of_a_model(variable: str) -> bool:
    """Whether clients of models read a variable: each provider has a key of its own name."""
    return variable.startswith(("DUOLOGUE_", "OPENAI_")) or variable.endswith("_API_KEY")


def _check(name: str, value: object) -> None:
    try:
        cloudpickle.dumps(value)
    except Exception as error:  # whatever an object of the user's raises
        instead = (
            "name the model instead, as in 'openai:gpt-5'"
            if name.startswith("model")
            else "give a function that makes what it needs when it is called"
        )
        raise SpecError(
            f"{name}: can't be sent to Ray's workers ({excerpt(str(error))}): {instead}"
        ) from error
