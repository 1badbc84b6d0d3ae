from .agreement import Agreement as Agreement, measure_agreement as measure_agreement
from .red_team import Tactic as Tactic, load_tactics as load_tactics, red_team as red_team
from .result import SimulationResult as SimulationResult
from .scenario import (
    Ending as Ending,
    EndKind as EndKind,
    JudgeOpinion as JudgeOpinion,
    Scenario as Scenario,
    ScenarioVerdict as ScenarioVerdict,
)
from .script import (
    agent as agent,
    check as check,
    judge as judge,
    proceed as proceed,
    user as user,
)
from .simulate import (
    SimulateOptions as SimulateOptions,
    asimulate as asimulate,
    simulate as simulate,
)
