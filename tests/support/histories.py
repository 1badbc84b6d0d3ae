"""A second implementation of who hears which message in a group conversation, as a test oracle.

As in Yacana, every speaker has its own history, which grows when the speaker says or hears a
message. The only part of duologue used here is the texts of its prompts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from duologue.graphs.prompts import prompts

Entry = tuple[Literal["system", "user", "assistant"], str]
"""A role and a text."""

Mode = Literal[
    "max_iterations_only",
    "end_chat_after_first_completion",
    "one_last_chat_after_first_completion",
    "one_last_group_chat_after_first_completion",
    "all_task_must_complete",
]

CASTS: Mapping[int, tuple[str, ...]] = {2: ("A", "B"), 3: ("A", "B", "C"), 4: ("A", "B", "C", "D")}

BLANK_LINE = "\n\n"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A conversation, and the checks at which each speaker completes its task."""

    names: tuple[str, ...] = CASTS[2]
    mode: Mode = "max_iterations_only"
    cap: int = 1
    completes: Mapping[str, int | None] = field(default_factory=dict)
    """The check at which each stopper completes its task. Never if None."""
    keeps: tuple[str, ...] = ()
    """Speakers that keep their reflections."""
    owner: str | None = None
    content: str | None = None
    reconcile: bool = False
    answers: bool = True
    """The conversation has opening answers."""
    two_questions: bool = False
    told: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Private messages to speakers."""
    made_up: tuple[str, ...] = ()
    """Speakers that invent a secret."""

    def task(self, name: str) -> str:
        """Return the task of one speaker: P1 for the first, P2 for the second."""
        return f"P{self.names.index(name) + 1}"

    def request(self, name: str) -> str:
        """Return the request that makes a speaker invent its secret."""
        return f"Make up what only {name} knows."

    def secret(self, name: str) -> str:
        """Return the secret that a speaker invents."""
        return f"secret-of-{name}"

    @property
    def shared_task(self) -> str | None:
        """Return the shared task, or None if each speaker answers its own."""
        return None if self.answers else "Talk."


@dataclass(frozen=True)
class Asked:
    """A model call."""

    name: str
    prompt: tuple[Entry, ...]
    reply: str | dict[str, Any]
    to_schema: bool = False


@dataclass
class Played:
    """The expected result of a plan."""

    plan: Plan
    histories: dict[str, list[Entry]]
    calls: list[Asked] = field(default_factory=list)
    spoken: list[tuple[str, str]] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    reasons: tuple[str, ...] = ()
    checks: dict[str, int] = field(default_factory=dict)
    marks: dict[str, int | None] = field(default_factory=dict)
    """For each speaker that has heard another: the index in its history of the message that
    contains the other's first words after an instruction. Prompts mark these words (R14).
    """

    def system(self, name: str) -> Entry:
        """Return a speaker's system prompt, with the shared task if there is one."""
        shared = self.plan.shared_task
        return "system", f"You are {name}." + (f"{BLANK_LINE}The task: {shared}" if shared else "")

    def hear(self, name: str, text: str) -> None:
        """Add a message that a speaker hears; merge it with a user message before it (Y8, L3)."""
        history = self.histories[name]
        if history and history[-1][0] == "user":
            history[-1] = ("user", history[-1][1] + BLANK_LINE + text)
        else:
            history.append(("user", text))

    def all_others_hear(self, name: str, text: str) -> None:
        for other in self.plan.names:
            if other != name:
                history = self.histories[other]
                joins = bool(history) and history[-1][0] == "user" and not self.labels
                self.marks.setdefault(other, len(history) - 1 if joins else None)
                self.hear(other, text)

    def ask(
        self,
        name: str,
        history: Sequence[Entry],
        reply: str | dict[str, Any],
        *,
        to_schema: bool = False,
    ) -> None:
        prompt, place = [*history], self.marks.get(name)
        if place is not None:
            told = prompts.MODERATOR_LABEL.replace("{text}", prompt[place][1])
            prompt[place] = ("user", told)
        self.calls.append(Asked(name, (self.system(name), *prompt), reply, to_schema))

    def say(self, name: str, text: str | None = None) -> str:
        """Let a speaker answer its history: A1, A2 and so on."""
        if text is None:
            earlier = [said for who, said in self.spoken if who == name]
            text = f"{name}{len(earlier) + 1 - (name in self.plan.made_up)}"
        history = self.histories[name]
        assert history[-1][0] == "user", "nobody speaks twice in a row"
        self.ask(name, history, text)
        history.append(("assistant", text))
        self.spoken.append((name, text))
        return text

    def labelled(self, name: str, text: str) -> str:
        """Return another speaker's message as it is heard, with a name in front if needed."""
        return f"{name}: {text}" if self.labels else text

    @property
    def labels(self) -> bool:
        """Return whether messages from others begin with their names."""
        return len(self.plan.names) > 2 or self.plan.reconcile


def played(plan: Plan) -> Played:
    """Play a plan by the rules.

    Args:
        plan: The conversation, and the checks at which each speaker completes its task.

    Returns:
        Every history at the end, every model call in order, and the reasons for the end.
    """
    play = Played(plan, {name: [] for name in plan.names})
    _secrets(play)
    opening = _opening(play)
    default = plan.names[1 if plan.answers else 0]
    start = plan.names.index(plan.owner or default)
    order = plan.names[start:] + plan.names[:start]
    _shift(play, order, opening)
    play.reasons = _rounds(play, order)
    return play


def _secrets(play: Played) -> None:
    """Play Y16: first all prescribed secrets, then the invented ones, speaker by speaker."""
    plan = play.plan
    for name in plan.names:
        for text in plan.told.get(name, ()):
            play.hear(name, text)
    for name in plan.names:
        if name in plan.made_up:
            play.hear(name, plan.request(name))
            play.say(name, plan.secret(name))


def _opening(play: Played) -> dict[str, str]:
    """Play Y4 and Y8: every speaker answers its own task; the others hear it only if reconciled."""
    plan = play.plan
    answers: dict[str, str] = {}
    for name in plan.names if plan.answers else ():
        play.hear(name, plan.task(name))
        if plan.reconcile:
            play.all_others_hear(name, f"To {name}: {plan.task(name)}")
        answers[name] = play.say(name)
        if plan.reconcile:
            play.all_others_hear(name, f"{name}: {answers[name]}")
    return answers


def _shift(play: Played, order: Sequence[str], answers: Mapping[str, str]) -> None:
    """Play Y5 to Y8: the first speaker of the rounds gets the message to answer."""
    plan = play.plan
    owner, before = order[0], order[-1]
    if plan.content is not None:
        play.hear(owner, plan.content)
    elif not plan.answers:
        play.hear(owner, prompts.BEGIN)
    elif plan.reconcile:
        play.hear(owner, prompts.CONTINUE_CONVERSATION)
    else:
        play.hear(owner, play.labelled(before, answers[before]))


def _rounds(play: Played, order: Sequence[str]) -> tuple[str, ...]:
    """Play Y9 to Y15 and Y20; return the reasons for the end."""
    plan = play.plan
    turns = [name for _ in range(plan.cap) for name in order]
    for number, name in enumerate(turns, start=1):
        _turn(play, name, is_first=number == 1)
        if plan.mode == "max_iterations_only" or name in play.completed:
            continue
        if name not in plan.completes or not _check(play, name):
            continue
        play.completed.append(name)
        if plan.mode == "all_task_must_complete" and {*play.completed} != {*plan.completes}:
            continue
        for other in _last_words(plan.mode, order, name):
            _turn(play, other)
        return ("completed", "max_iterations") if number == len(turns) else ("completed",)
    return ("max_iterations",)


def _turn(play: Played, name: str, *, is_first: bool = False) -> None:
    if len(play.plan.names) > 2 and not is_first:
        play.hear(name, prompts.YOUR_TURN.replace("{name}", name))
    text = play.say(name)
    play.all_others_hear(name, play.labelled(name, text))


def _last_words(mode: Mode, order: Sequence[str], name: str) -> Sequence[str]:
    """Return who has last words: the next speaker (Y13), or all, the next one first (Y14)."""
    place = order.index(name) + 1
    following = [*order[place:], *order[:place]]
    if mode == "one_last_chat_after_first_completion":
        return following[:1]
    return following if mode == "one_last_group_chat_after_first_completion" else ()


def _check(play: Played, name: str) -> bool:
    """Play Y9 and Y10: ask a stopper whether its task is done."""
    plan, history = play.plan, play.histories[name]
    number = play.checks[name] = play.checks.get(name, 0) + 1
    done = plan.completes[name] == number
    left = f"goal {number} of {name}"
    if plan.two_questions:
        first: Entry = ("user", prompts.LIST_OBJECTIVES_LEFT)
        answer: Entry = ("assistant", left)
        play.ask(name, [*history, first], left)
        second: Entry = ("user", prompts.IS_TASK_COMPLETE)
        play.ask(name, [*history, first, answer, second], "Yes." if done else "No.")
    else:
        first = ("user", prompts.JUDGE_OWN_TASK)
        still_left = prompts.OBJECTIVES_LEFT.replace("{objectives}", left)
        answer = ("assistant", prompts.NO_OBJECTIVES_LEFT if done else still_left)
        reply = {"objectives_left": [] if done else [left], "complete": done}
        play.ask(name, [*history, first], reply, to_schema=True)
    if name in plan.keeps:
        history += [first, answer]
    return done
