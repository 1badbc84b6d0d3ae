from .result import SimulationResult as SimulationResult
from .scenario import (
    Ending as Ending,
    EndKind as EndKind,
    Scenario as Scenario,
    ScenarioVerdict as ScenarioVerdict,
)
from .simulate import (
    SimulateOptions as SimulateOptions,
    asimulate as asimulate,
    simulate as simulate,
)
