"""The specification of a test by a simulated user, its ends and its verdicts."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PositiveInt,
    ValidationInfo,
    field_validator,
    model_validator,
)

from ..common.content import Block, describe_file, files_of, make_content, name_of_file, text_of
from ..common.content_input import ContentInput, read_content, read_files
from ..common.data import (
    NAME_LENGTH,
    Accepts,
    Cap,
    DistinctNames,
    Kinded,
    ModelName,
    NamedObject,
    Spec,
    Temperature,
    Text,
    by_kind,
    check_distinct,
    default,
)
from ..common.errors import SpecError
from ..conversation.conversation import Conversation
from ..conversation.judges import MOST_CRITERIA, Finding
from ..conversation.questions import is_exit
from ..kinds.simulation import simulation
from ..prompts.prompts import fill_template, read_kind_prompt
from .world import give_world


def _check_exit(text: str) -> str:
    if is_exit(text):
        raise ValueError(f"{text.strip()!r} alone leaves a conversation; write a whole sentence")
    return text


Line: TypeAlias = Annotated[Text, AfterValidator(_check_exit)]
"""The text of a fixed turn."""


_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9]+")


def _read_files(given: object) -> object:
    return tuple(read_files(given, "file")) if given else given


Files: TypeAlias = Annotated[
    Accepts[tuple[Block, ...], Sequence[Any]],
    BeforeValidator(_read_files),
    Field(repr=False),
]
"""Images and other files as content blocks. Paths, addresses and bytes are read."""


class UserTurn(Kinded):
    """A turn of the user."""

    kind: Literal["user"] = "user"
    """The kind of step."""
    text: Line | None = None
    """The user's message. If None and there are no files, the simulated user writes it."""
    files: Files = default(())
    """The images and other files of the message."""


class AgentTurn(Kinded):
    """A turn of the agent."""

    kind: Literal["agent"] = "agent"
    """The kind of step."""
    text: Line | None = None
    """A fixed reply, which the agent then finds among its messages. If None, the agent replies."""


class CheckNow(Kinded):
    """A check in the middle of a conversation."""

    kind: Literal["check"] = "check"
    """The kind of step."""
    check: Callable[..., Any]
    """A function, as in `Scenario.checks`. It receives the result so far."""


class Proceed(Kinded):
    """Several rounds between the simulated user and the agent."""

    kind: Literal["proceed"] = "proceed"
    """The kind of step."""
    rounds: PositiveInt | None = None
    """Maximum number of replies of the agent. If None, the conversation continues to its end."""


class JudgeNow(Kinded):
    """A verdict about the criteria in the middle of a conversation."""

    kind: Literal["judge"] = "judge"
    """The kind of step."""


Step: TypeAlias = Annotated[
    Annotated[UserTurn | AgentTurn | CheckNow | Proceed | JudgeNow, Field(discriminator="kind")],
    BeforeValidator(by_kind),
]
"""A step of a script."""


def user(message: ContentInput | None = None) -> UserTurn:
    """Return a turn of the user.

    Args:
        message: The message: a text, or a list of texts and files, as ``converse`` accepts it. If
            None, the simulated user writes it.

    Raises:
        SpecError: The message is empty or only ``exit``, or a file is not valid.
    """
    if message is None or isinstance(message, str):
        return UserTurn(text=message)
    content = read_content(message, "user", opens=True)
    if not content:
        raise SpecError("user: must not be empty; pass a text or a file")
    return UserTurn(text=text_of(content) or None, files=files_of(content))


def agent(text: str | None = None) -> AgentTurn:
    """Return a turn of the agent.

    Args:
        text: A fixed reply instead of the agent's. If None, the agent replies.

    Raises:
        SpecError: The text is blank or only ``exit``.
    """
    return AgentTurn(text=text)


def check(function: Callable[..., Any]) -> CheckNow:
    """Return a check that is called at this point of the conversation.

    If it is not met, the script and the simulation end.

    Args:
        function: The check, as in `Scenario.checks`. It receives the result so far.
    """
    return CheckNow(check=function)


def proceed(rounds: int | None = None) -> Proceed:
    """Return several simulated rounds.

    Args:
        rounds: Maximum number of replies of the agent. If None, the conversation continues to its
            end.

    Raises:
        SpecError: The number is below 1.
    """
    return Proceed(rounds=rounds)


def judge() -> JudgeNow:
    """Return a verdict about the criteria at this point of the conversation.

    If a criterion is not met, the script and the simulation end.
    """
    return JudgeNow()


def count_rounds(script: Sequence[Step]) -> int:
    """Return the number of rounds that a script needs, without a `proceed` to the end."""
    steps = [
        one.rounds if isinstance(one, Proceed) else isinstance(one, AgentTurn) for one in script
    ]
    return sum(one or 0 for one in steps)


def begins_with_agent(script: Sequence[Step]) -> bool:
    """Return whether the first step of a script is the agent's turn."""
    return isinstance(script[0], AgentTurn)


def check_order(script: Sequence[Step], *, has_criteria: bool) -> None:
    """Check that the turns of a script alternate, and that each step can be done at its place.

    Raises:
        ValueError: A step is at a wrong place; names it.
    """
    before: UserTurn | AgentTurn | Proceed | None = None
    for place, step in enumerate(script):
        problem = _find_problem(step, before, has_criteria=has_criteria)
        if problem:
            raise ValueError(f"script.{place}: {problem}")
        if isinstance(step, UserTurn | AgentTurn | Proceed):
            before = step
    if before is None:
        raise ValueError("script: it has no turn; add user(), agent() or proceed()")


def _find_problem(
    step: Step, before: UserTurn | AgentTurn | Proceed | None, *, has_criteria: bool
) -> str:
    """Return the reason why a step cannot follow the last turn, or an empty text."""
    match step, before:
        case AgentTurn(text=None), None:
            return "the agent has no message to answer; begin with user() or agent('…')"
        case AgentTurn(), AgentTurn() | Proceed():
            return "the agent replied last; add user() before it"
        case UserTurn(), UserTurn():
            return "the user spoke last; add agent() before it"
        case ((CheckNow() | JudgeNow()), None):
            return "nothing was said yet; put a turn before it"
        case JudgeNow(), _ if not has_criteria:
            return "there are no criteria to judge; set criteria, or use check(…)"
        case _, Proceed(rounds=None) if isinstance(step, UserTurn | Proceed):
            return "proceed() continues to the end; pass it a number of rounds"
    return ""


EndKind: TypeAlias = Literal[
    "done",
    "gave_up",
    "handed_over",
    "stopped",
    "unfinished",
    "script_finished",
    "script_failed",
]
"""The ways in which a simulation ends, as in `Ending.kind`."""


_WORDS: Final[Mapping[EndKind, str]] = {
    "done": "the user says the goal is met",
    "gave_up": "the user gave up",
    "handed_over": "the agent passed the user to a person",
    "script_finished": "the script is finished",
    "script_failed": "the script failed",
}


def make_file_tools(files: Sequence[Block]) -> list[NamedObject]:
    """Return a tool for each file that sends it to the agent with a message.

    Raises:
        ValueError: A file has no name, or two have alike names.
    """
    made: dict[str, NamedObject] = {}
    for file in files:
        tool = _name_tool(file)
        if tool in made:
            raise ValueError(
                f"files: two files have the name {name_of_file(file)!r}, or one that differs only "
                "in signs; rename one"
            )
        made[tool] = NamedObject(tool, _make_tool(tool, file))
    return [*made.values()]


def _name_tool(file: Block) -> str:
    name = name_of_file(file)
    if name is None:
        raise ValueError("files: a file has no name; pass its path, or a block with a filename")
    return f"send_{_NOT_IN_NAMES.sub('_', name).strip('_').lower()}"[:NAME_LENGTH]


def _make_tool(name: str, file: Block) -> object:
    # Imported here, since few scenarios have files.
    from langchain_core.tools import StructuredTool

    def send(message: str) -> object:
        return make_content(message, [file])

    return StructuredTool.from_function(
        send,
        name=name,
        description=f"Send your next message to the agent with your file: {describe_file(file)}.",
        return_direct=True,
    )


class Scenario(Spec):
    """A test of an agent by one simulated user.

    Raises:
        SpecError: A field is missing, unknown or wrong; names it.
    """

    goal: Text = Field(kw_only=False)
    """The user's private task, written to the user: "You want to …". The agent does not see it."""
    persona: Text | None = None
    """A description of the user and its style. No description if None."""
    knows: Text | None = None
    """The information that the user may reveal when it is needed. No information if None."""
    must_not_say: Text | None = None
    """The information that the user must not reveal. No such rule if None."""
    must_mention: Accepts[tuple[Text, ...], Sequence[str]] = default(())
    """Parts of the goal, such as an order number, that must be mentioned before the user ends the
    conversation with success, in any spelling."""
    language: Text | None = None
    """The language in which the user writes. The model chooses if None."""
    world: Callable[[], Any] | None = None
    """A function, sync or async, that makes the world of one simulation, such as a database: a new
    one for each. If it returns a context manager, or yields the world once, the world is closed
    after the checks. ``make_agent``, tools of the user and checks receive it. No world if None."""
    tools: DistinctNames = ()
    """The tools that the user may call: registered names, or in Python the tools themselves. If the
    scenario has a world, the parameter ``world`` of a function receives it."""
    files: Files = default(())
    """The images and other files that the user may send: paths, addresses or, in Python, bytes and
    content blocks. Each needs a name. The user sends one by a tool call with its message."""
    criteria: Accepts[
        Annotated[tuple[Text, ...], AfterValidator(check_distinct)], Sequence[str]
    ] = Field(default=default(()), max_length=MOST_CRITERIA)
    """Statements about the conversation that a judge checks once, after the end."""
    checks: Accepts[tuple[Callable[..., Any], ...], Sequence[Callable[..., Any]]] = default(())
    """Functions, sync or async, that receive the `SimulationResult` after the end. A check is met
    if it returns True or None, and not met if it returns False or raises an AssertionError."""
    expected_ends: Accepts[tuple[EndKind, ...], Sequence[EndKind]] = Field(
        default=default(("done",)), min_length=1
    )
    """The kinds of end with which the simulation can pass: ``done``, ``gave_up``, ``handed_over``,
    ``script_finished``, or ``stopped``, which is any cap or guard. By default ``done`` and, for a
    scenario with a script, ``script_finished``."""
    max_iterations: Cap = 10
    """Maximum number of rounds. A script may need more if this field is not set."""
    script: Accepts[tuple[Step, ...] | None, Sequence[Step] | None] = default(None)
    """The steps of the conversation, in order: ``user()``, ``agent()``, ``check()``, ``proceed()``
    and ``judge()`` of `duologue.graphs.scenarios`. If the conversation ends before the last turn,
    the other turns are left out. If None, the simulated user and the agent talk to the end."""
    user_errors: Literal["inconclusive", "judge", "ignore"] = "inconclusive"
    """The effect of an error of the simulated user, such as an invented fact. ``inconclusive``: the
    simulation is inconclusive unless a check fails. ``judge``: so, and the judge also decides
    whether the user kept to its instructions. ``ignore``: errors are not looked for."""
    blank_replies: bool = False
    """Whether the agent may reply without text. If False, such a reply is a failed check."""
    model: ModelName | None = None
    """The model of the simulated user. The option ``model`` of `simulate` if None."""
    temperature: Temperature = None
    """The temperature of the simulated user. 0.2 if None."""

    if TYPE_CHECKING:

        def __init__(self, goal: str, **fields: Any) -> None: ...

    @field_validator("tools")
    @classmethod
    def _give_world(cls, tools: Sequence[str], info: ValidationInfo) -> tuple[str, ...]:
        if info.data.get("world") is None:
            return tuple(tools)
        return tuple(
            NamedObject(one, give_world(one.brought)) if isinstance(one, NamedObject) else one
            for one in tools
        )

    @model_validator(mode="after")
    def _has_named_files(self) -> Self:
        make_file_tools(self.files)
        return self

    @model_validator(mode="after")
    def _has_room_for_the_user(self) -> Self:
        if len(self.judged) > MOST_CRITERIA:
            raise ValueError(
                f"criteria: may contain at most {MOST_CRITERIA - 1} with user_errors='judge', "
                "because the judge also decides about the user; remove one"
            )
        return self

    @model_validator(mode="after")
    def _has_possible_script(self) -> Self:
        if self.script is None:
            return self
        check_order(self.script, has_criteria=bool(self.judged))
        rounds = count_rounds(self.script)
        if "max_iterations" in self.model_fields_set and self.max_iterations < rounds:
            raise ValueError(
                f"max_iterations: the script has {rounds} rounds, more than {self.max_iterations}; "
                "raise it or shorten the script"
            )
        return self

    @property
    def user_tools(self) -> tuple[str, ...]:
        """Return the tools that the user may call, with those that send the files."""
        return (*self.tools, *make_file_tools(self.files))

    @property
    def judged(self) -> tuple[str, ...]:
        """Return the statements that a judge checks: the criteria, and one about the user."""
        if self.user_errors != "judge":
            return self.criteria
        given = {"goal": self.goal, "knows": self.knows, "must_not_say": self.must_not_say}
        values = {name: text or "-" for name, text in given.items()}
        return (*self.criteria, fill_template(_KEPT, **values))

    @property
    def accepted_ends(self) -> tuple[EndKind, ...]:
        """Return the kinds of end with which the simulation can pass.

        They are ``expected_ends``. The end of a script is one of them if that field is not set.
        """
        if self.script is None or "expected_ends" in self.model_fields_set:
            return self.expected_ends
        return (*self.expected_ends, "script_finished")

    def conversation(self, agent: Any) -> Conversation:  # noqa: ANN401  # any Runnable or name
        """Return the conversation of the simulated user with an agent.

        Args:
            agent: A Runnable, or the name of a registered agent.
        """
        own = {name: getattr(self, name) for name in _OF_CONVERSATION}
        own |= {"tools": self.user_tools, "criteria": self.judged}
        if self.script is not None:
            # The cap must not end the conversation before the script does.
            own["max_iterations"] = max(self.max_iterations, count_rounds(self.script) + 1)
        user = {"name": "User", "model": self.model}
        return simulation(self.goal, agent=agent, user=user, **own)


_KEPT: Final = read_kind_prompt("simulation_kept")

_OF_CONVERSATION: Final = (
    *("persona", "knows", "must_not_say", "language", "max_iterations"),
    "temperature",
)


def check_alike_files(scenarios: Mapping[str, Sequence[Block]]) -> None:
    """Check that the same tool sends the same file in all scenarios, by their names.

    Raises:
        ValueError: Two scenarios have different files with one name, or with alike names.
    """
    known: dict[str, tuple[str, Block]] = {}
    for scenario, files in scenarios.items():
        for file in files:
            other, first = known.setdefault(_name_tool(file), (scenario, file))
            if file != first:
                raise ValueError(
                    f"scenarios.{scenario}.files: {name_of_file(file)!r} is another file than "
                    f"{name_of_file(first)!r} in {other!r}; rename one of them"
                )


@dataclass(frozen=True)
class Ending:
    """The end of a simulation. ``str(ending)`` is a short description."""

    kind: EndKind
    """The kind of end: ``done``, ``gave_up``, ``handed_over``, ``stopped`` by a cap or a guard,
    ``unfinished`` if the session waits for a person, ``script_finished`` if the script's last turn
    was played, or ``script_failed`` if a check or a criterion in the script was not met."""
    stop_reason: str | None
    """The reason of the session's end, such as ``"max_iterations"``. None if it has not ended."""
    text: str
    """The user's reason for giving up; for ``stopped``, the cause; for ``script_failed``, the step
    and its verdict. Otherwise empty."""

    def __str__(self) -> str:
        words = _WORDS.get(self.kind, self.kind)
        return f"{words}: {self.text}" if self.text else words


USER_KEPT: Final = "the user kept to its instructions"
"""The name of the judge's verdict about the simulated user."""


@dataclass(frozen=True)
class JudgeOpinion:
    """The decision of one of two judges on a criterion."""

    judge: str
    """The name of the judge's model."""
    finding: Finding
    """The decision."""
    reason: str
    """The reason."""
    message: int | None = None
    """The number of the message that shows it. None if there is none."""


@dataclass(frozen=True)
class ScenarioVerdict:
    """The verdict about one criterion or check."""

    name: str
    """The criterion, or the name of the check."""
    finding: Finding
    """The decision: met, not met or inconclusive."""
    reason: str
    """The reason. Empty for a check that is met."""
    message: int | None = None
    """The number of the message that shows it, as in the report. None if there is none."""
    opinions: tuple[JudgeOpinion, ...] = ()
    """The decisions of two judges. Empty if one judge was asked."""
    is_readable: bool = True
    """Whether the answers of all judges could be read."""

    def __str__(self) -> str:
        # A criterion is a sentence. A colon does not follow its period.
        said = f"{self.name.rstrip(' .')}: {self.reason}" if self.reason else self.name
        at = "" if self.message is None else f" (message {self.message})"
        return f"[{self.finding.in_words}] {said}{at}"
