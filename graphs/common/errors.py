"""Errors for users, and validation of data. A message is one sentence that names the remedy.

Functions import pydantic, which takes as long as the rest of `duologue --help`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ContextDecorator, contextmanager, suppress
from difflib import get_close_matches
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from .addresses import hide_addresses, show_address
from .sanitize import UNSTORABLE, shorten

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails


def how_to_install(extra: str) -> str:
    """Return the commands that install one of the package's extras, as a remedy for an error."""
    return (
        f"run `pip install '.[{extra}]'` or `uv sync --inexact --extra {extra}` in a clone of "
        "duologue"
    )


class DuologueError(RuntimeError):
    """Base of every error that this library raises on purpose.

    It is a RuntimeError because LangGraph's servers send the text of a RuntimeError to clients and
    hide the text of other errors.

    Args:
        text: The sentence. It may quote any text: it is escaped, joined to one line, and
            shortened if it is too long.
    """

    def __init__(self, text: str = "") -> None:
        super().__init__(shorten(text).replace("\n", " "))


class SpecError(DuologueError, ValueError):
    """An invalid conversation, or an invalid file for one.

    The message names the field or file.
    """


class ModelError(DuologueError):
    """A model is not available or did not answer.

    The message names the model or its address.
    """


class ModelUnavailableError(ModelError):
    """A model is not available for any request.

    The message names the model or its address.

    Its key is rejected, the model does not exist, the server can't be reached, or a package is
    missing.
    """


class AgentError(DuologueError):
    """An agent of the user did not answer: it raised an error, or its server is down or refuses.

    The message names the agent and, without secrets, the server's address if it is known.
    """


class ContextTooLongError(ModelError):
    """A model refused a prompt that is too long for it. Contains both lengths if they are known.

    Attributes:
        prompt_tokens: Tokens of the prompt as the model counts them. None if unknown.
        limit: Maximum tokens that the model accepts, including the answer. None if unknown.
        estimate: Tokens of the prompt as duologue estimates them. None if unknown.
    """

    def __init__(
        self, text: str, *, prompt_tokens: int | None = None, limit: int | None = None
    ) -> None:
        super().__init__(text)
        self.prompt_tokens = prompt_tokens
        self.limit = limit
        self.estimate: int | None = None


class UnreadableAnswerError(ModelError):
    """A model's last answer does not fit the requested schema.

    The message names the schema.

    Attributes:
        reply: The complete text of this answer.
        session: The id of the session that contains it.
    """

    def __init__(self, text: str, *, reply: str, session: str) -> None:
        super().__init__(text)
        self.reply = reply
        self.session = session


class AnswerError(DuologueError, ValueError):
    """An answer to a question does not fit. The question stays open."""


class StoreError(DuologueError):
    """The store of sessions can't be opened, read or written.

    The message names the store.
    """


class SessionError(DuologueError):
    """A session is unknown, busy, or belongs to another conversation.

    The message names the session.
    """


class BatchError(DuologueError):
    """A batch is unknown, is run by another process, or belongs to other data.

    The message names the batch.
    """


class InconclusiveResult(DuologueError):  # noqa: N818  # an outcome of a test, not a fault
    """A simulation has neither passed nor failed.

    The message names the verdict that is inconclusive, or the error of the simulated user.
    """


class PausedError(DuologueError):
    """A run stopped before its next model call, because its batch is paused.

    Contains the reason.
    """


class ServerDownError(PausedError):
    """A run stopped because the server of an agent's model is down. It can be resumed.

    Attributes:
        outage: The number of the outage.
    """

    def __init__(self, text: str, outage: int) -> None:
        super().__init__(text)
        self.outage = outage


def function_error(
    what: str, name: str, error: BaseException, at: str | None = None
) -> DuologueError:
    """Return the error for a user's function, model or agent that raised an exception.

    It is a `SpecError` only if the function itself is at fault, and not the network.
    """
    where = "" if at is None else f" in {at}"
    address = None if isinstance(error, DuologueError) else find_address(error)
    server = "" if address is None else f" (its server is {address})"
    said = hide_addresses(f"{type(error).__name__}: {error}")
    is_unknown = what == "agent" and server and getattr(error, "status_code", None) == 404
    remedy = "; name the model of this server by agent_model (--agent-model)" if is_unknown else ""
    # A special OSError that names no file is an error of the network.
    is_network = address is not None or any(
        isinstance(one, OSError) and type(one) is not OSError and one.filename is None
        for one in iter_causes(error)
    )
    kind = AgentError if what == "agent" else DuologueError if is_network else SpecError
    return kind(f"the {what} {name!r} failed{where}: {said}{server}{remedy}")


def find_address(error: BaseException) -> str | None:
    """Return the address of the HTTP request that has failed, without secrets. None if unknown."""
    for one in iter_causes(error):
        # Clients raise RuntimeError if an error has no request.
        with suppress(Exception):
            url = str(getattr(one, "request").url)  # noqa: B009  # errors of several clients
            if url.startswith(("http://", "https://")):
                return show_address(url)
    return None


def iter_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and its causes."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__


F = TypeVar("F", bound=Callable[..., Any])


class _HiddenFrames(ContextDecorator):
    """A context and a decorator that end tracebacks in the user's own code.

    A decorated function is sync or async. An async generator function uses the context.
    """

    is_on = True
    """Whether it hides frames. The command line shows all of them if asked for a traceback."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, _kind: object, error: BaseException | None, _frames: object) -> None:
        """Shorten the traceback of an error. It is raised again without this frame."""
        if self.is_on and isinstance(error, Exception):
            _hide_frames(error)

    def __call__(self, func: F) -> F:
        """Return the function with shorter tracebacks."""
        # Imported here: `inspect` takes as long as the rest of this module.
        from inspect import iscoroutinefunction

        if not iscoroutinefunction(func):
            return super().__call__(func)

        @wraps(func)
        async def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # any function's
            with self:
                return await func(*args, **kwargs)

        return cast("F", call)


hide_frames: Final = _HiddenFrames()
"""For public functions: no frame of this or another library is above the user's frames."""


def _hide_frames(error: Exception) -> None:
    """Leave only the frames from the user's first one on in an error and its causes.

    If there is none, a `DuologueError` has no frames, and a TypeError of ours and a cause have only
    the place where they were raised. Any other error is a fault of a library, and keeps all frames.
    """
    for one in iter_causes(error):
        frames = last = one.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_libraries()):
            last, frames = frames, frames.tb_next
        if frames is not None or (one is error and isinstance(error, DuologueError)):
            one.__traceback__ = frames
        elif one is not error or _is_wrong_argument(one):
            one.__traceback__ = last
        if notes := getattr(one, "__notes__", None):
            # LangGraph notes the name and the id of a task, which a user can't use.
            notes[:] = [note for note in notes if not note.startswith("During task with name")]


def _is_wrong_argument(error: BaseException) -> bool:
    """Return whether a statement of this package raised a TypeError, so that it is no fault."""
    from traceback import extract_tb

    place = extract_tb(error.__traceback__)[-1]
    is_own = place.filename.startswith(str(_ROOT))
    return isinstance(error, TypeError) and is_own and (place.line or "").startswith("raise ")


_ROOT: Final = Path(__file__).parents[2]
"""The folder of this package."""


@cache
def _libraries() -> tuple[str, ...]:
    """Return the folders of this package, of other packages, and of the standard library."""
    # Imported here, since most programs raise no error.
    from sysconfig import get_path

    names = ("stdlib", "platstdlib", "purelib", "platlib")
    own = (_ROOT / "graphs", _ROOT / "nodes", _ROOT / "tools")
    folders = map(str, (*own, *(get_path(name) for name in names)))
    return (*(f"{folder}{os.sep}" for folder in folders), "<frozen")


@contextmanager
def naming_path(path: str) -> Iterator[None]:
    """Put the path of a part in front of each `SpecError` about the part."""
    try:
        yield
    except SpecError as error:
        raise SpecError(f"{path}.{error}") from error


M = TypeVar("M", bound="BaseModel")


DEEPEST: Final = 200
"""Maximum depth of nested data, in levels: deeper data can't be serialized or stored."""


def check_depth(data: object, where: str = "", deepest: int = DEEPEST) -> None:
    """Check that data is not nested too deep to be read, written and stored."""
    level: list[object] = [data]
    for _ in range(deepest + 1):
        # A text contains no other values, although it is a sequence.
        level = [
            inner
            for one in level
            if isinstance(one, Mapping | list | tuple)
            for inner in (one.values() if isinstance(one, Mapping) else one)
        ]
        if not level:
            return
    subject = where or "the data "
    raise SpecError(f"{subject}is nested too deeply; use at most {deepest} levels")


def check_data(data: object, where: str = "") -> None:
    """Check that any store can contain data: its depth and the characters of its texts."""
    check_depth(data, where)
    left = [("", data)]
    while left:
        path, value = left.pop()
        if isinstance(value, str) and (found := UNSTORABLE.search(value)):
            code = f"U+{ord(found[0]):04X}"
            raise SpecError(f"{where}{path}: contains {code}, which can't be stored; remove it")
        parts = (
            value.items()
            if isinstance(value, Mapping)
            else enumerate(value)
            if isinstance(value, list | tuple)
            else ()
        )
        left += [(f"{path}.{name}" if path else str(name), part) for name, part in parts]


def validate(
    model: type[M],
    data: Mapping[str, Any],
    where: str = "",
    check: Callable[[object, str], None] = check_data,
) -> M:
    """Build a model from data.

    Args:
        model: The model.
        data: Its fields.
        where: The beginning of an error, such as the file's name.
        check: The function that checks the data before the model reads it.

    Raises:
        SpecError: The data is not valid; the message names the field.
    """
    from pydantic import ValidationError

    check(data, where)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        # The place in pydantic helps nobody.
        raise SpecError(where + explain_error(error, model)) from error.with_traceback(None)


def explain_error(error: ValidationError, model: type[BaseModel]) -> str:
    """Explain in one sentence why data does not fit a model."""
    from .hints import suggest_value

    first = first_fault(error)
    path, near_models = _path(model, first["loc"])
    field = ".".join(path)
    match first["type"]:
        case "extra_forbidden":
            unknown = str(first["loc"][-1])
            if len(path) > 1 and unknown in _given_names(model.model_fields):
                # In TOML, all fields after a table's header belong to that table.
                return (
                    f"{field}: there is no such field; did you mean to set {unknown!r} outside "
                    f"(in TOML: above) {path[0]!r}?"
                )
            return describe_unknown_field(
                field, unknown, [found.model_fields for found in near_models]
            )
        case "union_tag_invalid":
            context = first.get("ctx") or {}
            kinds, tag = str(context["expected_tags"]), str(context["tag"])
            hint = did_you_mean(tag, [kind.strip(" '") for kind in kinds.split(",")])
            hint = hint or suggest_value(f"{field}.kind", tag) or f"; choose one of {kinds}"
            return f"{field}.kind: {tag!r} is unknown{hint}"
        case "union_tag_not_found":
            return f"{field}.kind: is missing{_suggest_kinds(near_models, path, first['input'])}"
        case "missing":
            return f"{field}: is missing"
        case "string_too_short" | "string_pattern_mismatch" if not str(first["input"]).strip():
            return f"{field}: must not be empty"
        case "string_pattern_mismatch":
            return f"{field}: must be on one line, not {first['input']!r}"
        case "too_short":
            needed = (first.get("ctx") or {}).get("min_length")
            return f"{field}: needs at least {needed}"
        case "model_type" | "model_attributes_type":
            owner = (first.get("ctx") or {}).get("class_name")
            shown = _quote_value(first["input"])
            text = f"must be a table or a dict with fields of {owner}, not {shown}"
            text += suggest_value(field, first["input"])
            return f"{field}: {text}" if field else text
        case _:
            message = first["msg"].removeprefix("Value error, ")
            given = first["input"]
            # The library's own errors may quote the value already.
            told = isinstance(given, str) and repr(given) in message
            shown = "" if told else f", not {_quote_value(given)}" if _is_shown(first) else ""
            text = message[:1].lower() + message[1:].replace("valid tuple", "list")
            text = re.sub(", unable to parse string as an? [a-z]+$", "", text)
            wants_list = first["type"] in ("list_type", "tuple_type")
            hint = suggest_value(field, given, wants_list=wants_list)
            text += f"{shown}{_near_value(first) or hint}"
            return f"{field}: {text}" if field else text


def describe_unknown_field(
    path: str, unknown: str, models: Sequence[Mapping[str, FieldInfo]]
) -> str:
    """Describe an unknown field in one sentence, with suggestions from the known fields."""
    from .hints import SYNONYMS, suggest_argument

    known = [name for fields in models for name in _given_names(fields)]
    hint = suggest_argument(unknown, known)
    if hint:
        return f"{path}: there is no such field{hint}"
    hint = did_you_mean(unknown, known)
    # The same name in a part of the model, or this library's name for the same field, is a better
    # guess than a name that looks alike.
    for name in (unknown, *SYNONYMS.get(unknown.casefold(), ())):
        deeper = [place for fields in models for place in _nested_paths(fields, name)]
        places = [name] if name in known else deeper
        if places:
            hint = f"; did you mean {list_names(dict.fromkeys(places))}?"
            break
    return f"{path}: there is no such field{hint}"


def _given_names(fields: Mapping[str, FieldInfo]) -> list[str]:
    """Return the names that callers use for a model's fields: the alias if there is one."""
    return [
        field.validation_alias if isinstance(field.validation_alias, str) else name
        for name, field in fields.items()
    ]


def _nested_paths(fields: Mapping[str, FieldInfo], name: str) -> Iterator[str]:
    """Yield the paths of the fields with this name in the parts that a model always has."""
    from pydantic import BaseModel

    for part, field in fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            found = (
                [name] if name in inner.model_fields else _nested_paths(inner.model_fields, name)
            )
            yield from (f"{part}.{place}" for place in found)


def _near_value(fault: ErrorDetails) -> str:
    """Suggest the value that was probably meant, for the end of an error."""
    if fault["type"] not in ("literal_error", "enum") or not isinstance(fault["input"], str):
        return ""
    known = re.findall("'([^']*)'", str((fault.get("ctx") or {}).get("expected")))
    return did_you_mean(fault["input"], known)


def _suggest_kinds(models: Sequence[type[BaseModel]], path: Sequence[str], given: object) -> str:
    """Suggest the kinds of a part that have all its fields, or else list all kinds."""
    name = next((part for part in reversed(path) if not part.isdecimal()), "")
    fields = [model.model_fields[name] for model in models if name in model.model_fields]
    kinds = {
        str(kind.model_fields["kind"].default): kind.model_fields
        for field in fields
        for kind in _models_in(field.annotation)
        if "kind" in kind.model_fields
    }
    own = given.keys() if isinstance(given, Mapping) else set[str]()
    fitting = [kind for kind, known in kinds.items() if own and own <= known.keys()]
    if len(fitting) == 1:
        return f"; add kind = {fitting[0]!r}"
    return f"; add one of {list_names(fitting or kinds)}" if kinds else ""


def _is_shown(fault: ErrorDetails) -> bool:
    """Return whether an error quotes the value, because it is short or of a wrong type."""
    return isinstance(fault["input"], str | int | float) or fault["type"].endswith("_type")


def _quote_value(given: object) -> str:
    if given is None or isinstance(given, str | int | float):
        return repr(given)
    return type(given).__name__


def name_type(given: object) -> str:
    """Return the type of a wrong value, for the end of an error."""
    return f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__


def list_names(names: Iterable[str]) -> str:
    """Join names for an error message, each in quotes."""
    return ", ".join(repr(name) for name in names)


def did_you_mean(unknown: str, known: Sequence[str]) -> str:
    """Suggest similar names for the end of an error; case is ignored."""
    folded = {name.casefold(): name for name in known}
    near = [folded[name] for name in get_close_matches(unknown.casefold(), folded, cutoff=0.65)]
    return f"; did you mean {list_names(near)}?" if near else ""


def suggest_near_or_all(unknown: str, known: Sequence[str]) -> str:
    """Suggest similar names, or else list all, for the end of an error."""
    return did_you_mean(unknown, known) or f"; choose one of {list_names(known)}"


def suggest_option(unknown: str, known: Sequence[str]) -> str:
    """Suggest the option with the same meaning, or else similar names, or else list all."""
    from .hints import SYNONYMS, suggest_replacement

    same = [name for name in SYNONYMS.get(unknown.casefold(), ()) if name in known]
    if same:
        return f"; did you mean {list_names(same)}?"
    # `ask` has no conversation of the user.
    replacement = "" if "end_when" in known else suggest_replacement(unknown)
    return replacement or suggest_near_or_all(unknown, known)


def first_fault(error: ValidationError) -> ErrorDetails:
    """Return the error to report, of all the errors that pydantic found."""
    found = error.errors(include_url=False)
    # A mistyped field is the reason why another one is missing.
    return next((one for one in found if one["type"] == "extra_forbidden"), found[0])


def _path(
    model: type[BaseModel], found: tuple[int | str, ...]
) -> tuple[list[str], list[type[BaseModel]]]:
    """Return the path of an error as in a file, without the kinds that pydantic adds.

    The second value is the models that contain the last field of the path.
    """
    path: list[str] = []
    at: list[type[BaseModel]] = [model]
    inside = at
    # The outermost model is not one of several kinds.
    chosen = True
    for part in found:
        kinds = [
            one
            for one in inside
            if "kind" in one.model_fields and one.model_fields["kind"].default == part
        ]
        # A field may be called like its kind.
        if kinds and not chosen:
            inside, chosen = kinds, True
            continue
        chosen = False
        path.append(str(part))
        if isinstance(part, int):
            continue
        at = inside
        fields = (one.model_fields.get(part) for one in at)
        inside = [inner for one in fields if one for inner in _models_in(one.annotation)]
    return path, at


def _models_in(annotation: object) -> list[type[BaseModel]]:
    from pydantic import BaseModel

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        # The base of a tagged union stands for all its kinds.
        return [
            annotation,
            *(one for kind in annotation.__subclasses__() for one in _models_in(kind)),
        ]
    arguments = getattr(annotation, "__args__", ())
    return [found for argument in arguments for found in _models_in(argument)]
