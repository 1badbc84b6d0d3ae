"""A domain of a shop, with the interface of tau2-bench's environments."""

import json
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tau2.data_model.message import (
    Message,
    ToolCall,
)


class Basis(Enum):
    DB = "DB"
    ENV_ASSERTION = "ENV_ASSERTION"
    ACTION = "ACTION"
    COMMUNICATE = "COMMUNICATE"
    NL_ASSERTION = "NL_ASSERTION"


@dataclass
class Database:
    orders: dict[str, dict[str, Any]]

    def model_dump(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Tools:
    db: Database

    def get_db_hash(self) -> str:
        return json.dumps(self.db.model_dump(), sort_keys=True)

    def refund(self, order: str) -> str:
        """Refund an order."""
        self.db.orders[order]["status"] = "refunded"
        return "done"


@dataclass
class UserTools(Tools):
    def unpack(self, order: str) -> str:
        """Unpack a parcel."""
        self.db.orders[order]["status"] = "unpacked"
        return "a lamp"


@dataclass
class Tool:
    function: Any

    @property
    def name(self) -> str:
        return str(self.function.__name__)

    @property
    def openai_schema(self) -> dict[str, Any]:
        parameters = {"type": "object", "properties": {"order": {"type": "string"}}}
        told = {"name": self.name, "description": self.function.__doc__, "parameters": parameters}
        return {"type": "function", "function": told}


class Environment:
    def __init__(self) -> None:
        self.tools = Tools(Database({"7": {"status": "sent"}, "8": {"status": "sent"}}))
        self.user_tools = UserTools(Database({"7": {"status": "packed"}}))

    def get_policy(self) -> str:
        return "Refund only sent orders."

    def get_tools(self) -> list[Tool]:
        return [Tool(self.tools.refund)]

    def get_user_tools(self) -> list[Tool]:
        return [Tool(self.user_tools.unpack)]

    def set_state(
        self,
        initialization_data: Any,  # noqa: ANN401
        initialization_actions: Any,  # noqa: ANN401
        message_history: list[Message],
    ) -> None:
        for call in initialization_actions or ():
            self.make_tool_call(**call)
        for message in message_history:
            for made in message.tool_calls or ():
                self.make_tool_call(made.name, made.requestor, **made.arguments)

    def make_tool_call(self, tool_name: str, requestor: str, **arguments: Any) -> Any:  # noqa: ANN401
        kit = self.user_tools if requestor == "user" else self.tools
        return getattr(kit, tool_name)(**arguments)

    def get_response(self, call: ToolCall) -> Message:
        try:
            found = self.make_tool_call(call.name, call.requestor, **call.arguments)
        except Exception as error:
            return Message("tool", f"Error: {error!r}", error=True)
        return Message("tool", found)

    def run_env_assertion(self, assertion: Any, *, raise_assertion_error: bool) -> bool:  # noqa: ANN401
        order = self.tools.db.orders[assertion.arguments["order"]]
        return bool(order["status"] == "refunded")


@dataclass
class Action:
    name: str
    arguments: dict[str, Any]
    requestor: str = "assistant"

    def compare_with_tool_call(self, call: ToolCall) -> bool:
        return (self.name, self.arguments) == (call.name, call.arguments)

    def get_func_format(self) -> str:
        return f"{self.name}({', '.join(f'{key}={one}' for key, one in self.arguments.items())})"


@dataclass
class Criteria:
    actions: list[Action] | None = None
    env_assertions: list[Any] | None = None
    communicate_info: list[str] | None = None
    nl_assertions: list[str] | None = None
    reward_basis: list[Basis] = field(default_factory=lambda: [Basis.DB, Basis.COMMUNICATE])


@dataclass
class Task:
    id: str
    user_scenario: str
    evaluation_criteria: Criteria | None
    initial_state: Any = None
    user_tools: list[str] | None = None


def get_environment() -> Environment:
    return Environment()


def get_tasks() -> list[Task]:
    path = Path(__file__).parents[4] / "data" / "tau2" / "tasks.json"
    return [_read_task(one) for one in json.loads(path.read_text())]


def _read_task(fields: dict[str, Any]) -> Task:
    criteria = fields.pop("criteria", None)
    state = fields.pop("state", None)
    if criteria is not None:
        known = {**criteria, "reward_basis": [*map(Basis, criteria["reward_basis"])]}
        known["actions"] = [Action(**one) for one in criteria.get("actions", ())] or None
        asserted = criteria.get("env_assertions", ())
        known["env_assertions"] = [SimpleNamespace(**one) for one in asserted] or None
        criteria = Criteria(**known)
    if state is not None:
        history = [
            Message(
                **{**one, "tool_calls": [ToolCall(**call) for call in one.get("tool_calls", ())]}
            )
            for one in state.get("message_history", ())
        ]
        state = SimpleNamespace(**{**state, "message_history": history})
    return Task(evaluation_criteria=criteria, initial_state=state, **fields)
