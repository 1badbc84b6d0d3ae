"""The questions of a session: printed with their commands, or asked at the terminal or a pipe.

`graphs.cli.terminal.console` reads the lines.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import JsonValue
from rich.console import Console
from rich.text import Text

from ..common.content import Block, make_content
from ..common.errors import SpecError, list_names
from ..common.files import parse_json
from ..common.sanitize import dump_exact_json, escape_invisible
from ..conversation.questions import (
    DECISION_WORDS,
    EXIT,
    ApprovalQuestion,
    MessageQuestion,
    Question,
    ToolQuestion,
    is_exit,
)
from ..rules.questions import call_shown
from ..session.options import GivenAnswer
from ..session.questions import answered_question, bind_answer
from ..session.session import Session
from .follow_up import FollowUp
from .terminal.console import Lines, cut_text, one_line, plain, prose, whole
from .terminal.events import Transcript

_LONGEST_QUESTION = 300  # characters of a question on one line


def print_question(console: Console, question: Question, *, of: str, style: str = "") -> None:
    """Print the question that a session waits for, on one line.

    Args:
        console: The console to print to.
        question: The question.
        of: The words before "for an answer", such as "Session garden waits".
        style: The style of the line.
    """
    waits = f"{of} for an answer. "
    if isinstance(question, MessageQuestion):
        prose(console, waits + one_line(question.summary(), _LONGEST_QUESTION), style)
        return
    # A person may approve the call that is printed here, so its white space is kept.
    asked = cut_text(escape_invisible(question.summary()), _LONGEST_QUESTION)
    plain(console, waits + asked, style)


def ways_on(session: str, questions: Sequence[Question], follow_up: FollowUp) -> list[str]:
    """Return the lines with the commands that answer a waiting session."""
    answers = []
    for question in questions:
        if follow_up.in_python:
            sample = question.sample()
            value = sample if isinstance(question, ApprovalQuestion) else repr(sample)
            given = (value, f"question={question.id!r}")
            answers.append(f"Answer it in Python: {follow_up.call('answer', session, *given)}")
            continue
        # With the question's id a copied command cannot answer a later question.
        command = follow_up.command(
            "answer",
            session,
            options=["--question", question.id],
            arguments=[question.sample()],
        )
        answers.append(f"Answer it with: {command}")
    if follow_up.in_python:
        return answers
    return [*answers, f"Or answer in the terminal: {follow_up.command('resume', session)}"]


def reply_of(
    session: str,
    answer: str,
    question: str | None,
    store: str | Path | None,
    files: Sequence[Block] = (),
) -> GivenAnswer:
    """Read the ANSWER argument of `duologue answer`, and the files of --attach.

    Raises:
        SpecError: There are files, but the question does not ask for a message.
    """
    found = Session(session, store=store).state()
    bound = bind_answer(session, found.pending, GivenAnswer(answer, question))
    has_ended = found.outcome is not None
    meant = answered_question(session, found.pending, bound, has_ended=has_ended)
    # With its id the answer cannot be used for another question that is asked meanwhile.
    if not files:
        return GivenAnswer(meant.read(answer), meant.id)
    if not isinstance(meant, MessageQuestion):
        raise SpecError("--attach: this question does not ask for a message; leave the option out")
    return GivenAnswer(make_content(answer, files), meant.id)


_KEYS = {"a": "approve", "e": "edit", "r": "reject", "s": "respond"}
_ALL = ("v", "view")
_LONGEST_ARGUMENT = 200  # characters of an argument that are shown at first
_NAME = 30  # columns of a speaker's name in a prompt


class Asker:
    """A reader of a person's answers, at the terminal or from a pipe."""

    def __init__(self, transcript: Transcript, lines: Lines) -> None:
        self._transcript = transcript
        self._lines = lines
        self._explained = ""
        self._reminded: set[str] = set()

    async def answer(self, question: Question) -> JsonValue:
        """Ask a question and return the answer, or None if the input has ended.

        The call blocks the event loop on purpose: nothing else runs while a person thinks, and a
        blocking read can be interrupted only in the main thread.
        """
        if question.problem is not None:
            self._complain(question.problem)
        try:
            match question:
                case MessageQuestion():
                    return self._message(question)
                case ApprovalQuestion():
                    return self._decisions(question)
                case ToolQuestion():
                    return self._tools_own(question)
        except EOFError:
            return None

    def _message(self, question: MessageQuestion) -> str:
        self._gap()
        self._remind(question)
        self._explain(question.prompt)
        colour = f"bold {self._transcript.colour(question.speaker)}"
        prompt = Text(f"{one_line(question.speaker, _NAME)}> ", colour)
        while True:
            text = self._lines.read(prompt, keep=True)
            if text.strip() or question.empty is not None:
                break
            self._complain("A message is required here. Enter exit to leave.")
        if self._lines.is_echoed:
            self._transcript.remember_typed(text)
        return text

    def _remind(self, question: MessageQuestion) -> None:
        """Print the speaker's task and the messages it has heard, unless they are on the screen."""
        is_new = question.speaker not in self._reminded
        self._reminded.add(question.speaker)
        heard = self._transcript.unseen(question.heard, question.speaker)
        parts = [
            ("'s task:", question.task if is_new and question.task not in heard else ""),
            (" has heard:", heard),
        ]
        for words, text in parts:
            if text:
                self._tell(f"{question.speaker}{words}")
                self._tell(text, "", whole)
        for call in question.calls if is_new else ():
            self._tell(f"Pending call: {call_shown(call.name, call.args)}", show=plain)
        if any(text for _, text in parts) or (question.calls and is_new):
            self._gap()

    def _decisions(self, question: ApprovalQuestion) -> dict[str, Any] | str:
        decisions = []
        for call in question.action_requests:
            decision = self._decision(question, call)
            if decision is None:
                return EXIT
            decisions.append(decision)
        return {"decisions": decisions}

    def _decision(self, question: ApprovalQuestion, call: dict[str, Any]) -> dict[str, Any] | None:
        """Ask for the decision on a call. Return None if the person leaves."""
        keys = {key: word for key, word in _KEYS.items() if word in question.allowed(call)}
        self._gap()
        cut = self._call(call, _LONGEST_ARGUMENT)
        self._explain(f"Ctrl-D: decide later. Enter {EXIT} to leave.")
        shown = [f"{word} ({key})" for key, word in keys.items()] + ["view all (v)"] * cut
        prompt = Text(f"{', '.join(shown)}> ", "bold")
        while True:
            given = self._lines.read(prompt).strip().casefold()
            if given in _ALL:
                self._call(call, None)
                continue
            if is_exit(given):
                return None
            word = keys.get(given, DECISION_WORDS.get(given, given))
            if word not in keys.values():
                choices = list_names([*keys.values()])
                self._complain(f"{given!r} is not a decision. Answer with {choices}.")
                continue
            decision = self._complete_decision(word, call)
            if decision is not None:
                return decision

    def _complete_decision(self, word: str, call: dict[str, Any]) -> dict[str, Any] | None:
        """Ask for the details of a decision. Return None if the person takes it back."""
        if word == "edit":
            arguments = self._arguments(call)
            action = {"name": call["name"], "args": arguments}
            return None if arguments is None else {"type": word, "edited_action": action}
        if word == "reject":
            text = self._lines.read(Text("reason (optional)> ", "bold"))
            return {"type": word, "message": text} if text.strip() else {"type": word}
        if word == "respond":
            text = self._lines.read(Text("result (empty: back)> ", "bold"))
            return {"type": word, "message": text} if text.strip() else None
        return {"type": word}

    def _arguments(self, call: dict[str, Any]) -> dict[str, Any] | None:
        # Every invisible character is escaped, so that the person sees and edits the exact value.
        text = dump_exact_json(call["args"])
        prompt = Text("arguments as JSON (empty: back)> ", "bold")
        while True:
            text = self._lines.read(prompt, prefilled=text)
            if not text.strip():
                return None
            try:
                found = parse_json(text)
            except ValueError as error:
                self._complain(f"That is not JSON: {error}")
                continue
            if isinstance(found, dict):
                return found
            self._complain('The arguments must be a JSON object, such as {"name": "value"}.')

    def _call(self, call: dict[str, Any], longest: int | None) -> bool:
        """Print a waiting call, and return whether any argument was cut."""
        name = escape_invisible(str(call["name"]))
        described = escape_invisible(str(call.get("description") or ""), keep="\n")
        # A description that contains the arguments is cut where they begin, because they are
        # printed below.
        quoting = described.partition(call_shown(call["name"], call["args"]))
        self._tell(f"{quoting[0]}{name}:" if quoting[1] else described or name, "bold")
        was_cut = False
        for argument, value in call["args"].items():
            text = dump_exact_json(value)
            shown = text if longest is None else cut_text(text, longest)
            was_cut = was_cut or shown != text
            self._tell(f"  {escape_invisible(argument)}: {shown}", "", plain)
        return was_cut

    def _tools_own(self, question: ToolQuestion) -> JsonValue:
        self._gap()
        self._tell("A tool asks:" if question.by == "tool" else "An agent asks:", "bold")
        value = question.value
        if isinstance(value, str):
            self._tell(escape_invisible(value, keep="\n"), "", plain)
        else:
            self._tell(dump_exact_json(value, indent=2), "", plain)
        self._explain("Enter JSON or any text. Ctrl-D: answer later.")
        while True:
            text = self._lines.read(Text("answer> ", "bold"))
            if text.strip():
                return question.read(text)
            self._complain('An answer is required. Enter "" for an empty text.')

    def _explain(self, text: str) -> None:
        """Print a hint, unless the last printed hint was the same."""
        if text != self._explained:
            self._tell(text)
            self._explained = text

    def _gap(self) -> None:
        if self._lines.is_typed:
            self._lines.console.print()

    def _tell(
        self, text: str, style: str = "dim", show: Callable[[Console, str, str], None] = prose
    ) -> None:
        """Print a text to a person who types. Input from a pipe needs none.

        Text that a person decides on is printed by `plain`, with all its white space.
        """
        if self._lines.is_typed:
            show(self._lines.console, text, style)

    def _complain(self, text: str) -> None:
        prose(self._lines.console, text, "yellow")
