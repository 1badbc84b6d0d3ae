from .compare import (
    ScenarioChange as ScenarioChange,
    SuiteComparison as SuiteComparison,
    compare_suites as compare_suites,
)
from .generate import (
    agenerate_scenarios as agenerate_scenarios,
    generate_scenarios as generate_scenarios,
)
from .http_agent import HttpAgent as HttpAgent
from .result import (
    Agreement as Agreement,
    SimulationResult as SimulationResult,
    measure_agreement as measure_agreement,
)
from .scenario import (
    Ending as Ending,
    EndKind as EndKind,
    JudgeOpinion as JudgeOpinion,
    Scenario as Scenario,
    ScenarioVerdict as ScenarioVerdict,
    agent as agent,
    check as check,
    judge as judge,
    proceed as proceed,
    user as user,
)
from .simulate import (
    SimulateOptions as SimulateOptions,
    arerun_simulation as arerun_simulation,
    asimulate as asimulate,
    rerun_simulation as rerun_simulation,
    simulate as simulate,
)
from .suite import Suite as Suite, load_suite as load_suite
from .suite_report import (
    ScenarioRow as ScenarioRow,
    SimulationRow as SimulationRow,
    SuiteReport as SuiteReport,
)
from .suite_run import arun_suite as arun_suite, run_suite as run_suite
from .tactics import Tactic as Tactic, load_tactics as load_tactics, red_team as red_team
from .tau2 import load_tau2 as load_tau2
