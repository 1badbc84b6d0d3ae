"""Tool calls in a model's answer, read so that the log can store them and a tool can run.

A call is either kept exactly as the server sent it, or becomes an invalid call whose reason the
model sees.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, InvalidToolCall
from langchain_core.messages.tool import ToolCall
from pydantic import ValidationError

from ...graphs.log.messages import storable
from .answers import OPAQUE_OF_CALLS, RAW, is_cut_off
from .call_pieces import arguments_as_text, decode_arguments, join_calls
from .storable_json import TOO_DEEP, TOO_LARGE, why_unstorable
from .tool_names import Names, find_registered

NO_NAME = "The call has no tool name."
NOT_JSON = "The arguments of {name} are not valid JSON: {why}."
CUT_OFF = "The call of {name} did not run because the answer was cut off."
NO_OBJECT = "The arguments of {name} must be a JSON object, not {what}."
UNFIT = "The arguments of {name} cannot be accepted: {why}."
UNREADABLE_CALL = "The call of {name} cannot be read."

_WORDS: Mapping[type, str] = {
    list: "a list",
    str: "a text",
    bool: "true or false",
    int: "a number",
    float: "a number",
}


def raw_calls(found: object) -> list[dict[str, Any]]:
    """Return the calls, or the parts of calls, of a message in OpenAI's form."""
    taken = []
    for call in found if isinstance(found, list) else ():
        fields = call if isinstance(call, Mapping) else {}
        function = fields.get("function")
        inner = function if isinstance(function, Mapping) else {}
        raw = {"id": fields.get("id"), **{key: inner.get(key) for key in ("name", "arguments")}}
        raw |= {
            key: fields[key] for key in ("index", *OPAQUE_OF_CALLS) if fields.get(key) is not None
        }
        taken.append(raw)
    return taken


def read_call(
    name: object, arguments: object, call_id: object, *, cut_off: bool = False
) -> ToolCall | InvalidToolCall:
    """Return a call, or an invalid call with the reason, from the values that the server sent.

    If the answer was cut off, a call without arguments may have lost all of them.
    """
    called = storable(name) if isinstance(name, str) else ""
    key = storable(str(call_id)) if call_id else None
    if not called:
        return _make_invalid(called, arguments, key, NO_NAME)
    read = arguments
    if isinstance(arguments, str):
        try:
            read = decode_arguments(arguments)
        except RecursionError:
            return _make_invalid(called, arguments, key, _describe_unfit(called, TOO_DEEP))
        except json.JSONDecodeError as error:
            why = f"{error.msg}, at character {error.pos + 1}"
            error_text = (CUT_OFF if cut_off else NOT_JSON).format(name=called, why=why)
            return _make_invalid(called, arguments, key, error_text)
        except ValueError:
            # Python refuses numbers of more than some thousand digits.
            return _make_invalid(called, arguments, key, _describe_unfit(called, TOO_LARGE))
    if read is None:
        if cut_off:
            return _make_invalid(called, arguments, key, CUT_OFF.format(name=called))
        read = {}
    if not isinstance(read, dict):
        what = _WORDS.get(type(read), f"a {type(read).__name__}")
        return _make_invalid(called, arguments, key, NO_OBJECT.format(name=called, what=what))
    fault = why_unstorable(read)
    if fault is not None:
        return _make_invalid(called, arguments, key, _describe_unfit(called, fault))
    return ToolCall(name=called, args=read, id=key, type="tool_call")


def read_calls(
    raw: Sequence[Mapping[str, Any]], *, cut_off: bool = False
) -> tuple[list[ToolCall], list[InvalidToolCall]]:
    """Read the calls of an answer that is not streamed, and return valid and invalid calls.

    Args:
        raw: The calls, in the form of `raw_calls`.
        cut_off: Whether the answer was cut off: it reached its maximum length, or it has no end. A
            call is then valid only if its arguments arrived, and are whole JSON.
    """
    return _read(join_calls([raw]), cut_off=cut_off) if raw else ([], [])


def _read(
    whole: Iterable[Mapping[str, Any]], *, cut_off: bool
) -> tuple[list[ToolCall], list[InvalidToolCall]]:
    read = (
        read_call(call["name"], call["arguments"], call["id"], cut_off=cut_off) for call in whole
    )
    return split_calls([*read])


def split_calls(
    calls: Sequence[ToolCall | InvalidToolCall],
) -> tuple[list[ToolCall], list[InvalidToolCall]]:
    """Return the valid calls and the invalid calls."""
    good = [call for call in calls if call["type"] == "tool_call"]
    return good, [call for call in calls if call["type"] == "invalid_tool_call"]


def normalise_calls(answer: AIMessage, names: Names) -> AIMessage:
    """Return an answer with its calls in the form that the log stores."""
    raw = answer.additional_kwargs.get(RAW)
    if raw is None and not answer.tool_calls and not answer.invalid_tool_calls:
        return answer
    if raw is not None:
        joined = join_calls(raw)
        named = [{**call, "name": find_registered(call["name"], names)} for call in joined]
        good, broken = _read(named, cut_off=is_cut_off(answer))
    else:
        good, broken = split_calls(
            [
                read_call(_find_name(call["name"], names), call["args"], call["id"])
                for call in answer.tool_calls
            ]
        )
        broken += [_read_invalid(call, names) for call in answer.invalid_tool_calls]
    kept = {key: value for key, value in answer.additional_kwargs.items() if key != RAW}
    return answer.model_copy(
        update={"tool_calls": good, "invalid_tool_calls": broken, "additional_kwargs": kept}
    )


def without_mended_call(answer: AIMessage) -> AIMessage:
    """Return an answer without its last call if a client may have repaired that call.

    If an answer was cut off, clients that do not keep invalid calls repair its last call.
    """
    *good, last = [None, *answer.tool_calls]
    if last is None or answer.invalid_tool_calls or not is_cut_off(answer):
        return answer
    error = CUT_OFF.format(name=last["name"] or "a tool")
    broken = [_make_invalid(last["name"], last["args"], last["id"], error)]
    return answer.model_copy(update={"tool_calls": good[1:], "invalid_tool_calls": broken})


def recover_answer(error: ValidationError) -> AIMessage | None:
    """Return an answer that LangChain refused because of its calls, or None.

    LangChain raises on arguments that are JSON but not an object, and drops the rest of the answer.
    """
    if error.title not in ("AIMessage", "AIMessageChunk"):
        return None
    faults = [fault for fault in error.errors() if fault["loc"][:1] == ("tool_calls",)]
    if len(faults) < error.error_count():
        return None
    broken = [read_call("the tool", fault["input"], None) for fault in faults]
    return AIMessage("", invalid_tool_calls=split_calls(broken)[1])


def _find_name(name: object, names: Names) -> object:
    return find_registered(name, names) if isinstance(name, str) else name


def _read_invalid(call: InvalidToolCall, names: Names) -> InvalidToolCall:
    """Return an invalid call with the reason why it is invalid."""
    name = _find_name(call["name"], names)
    read = read_call(name, call["args"], call["id"])
    if read["type"] == "invalid_tool_call":
        return read
    error = storable(call["error"] or UNREADABLE_CALL.format(name=read["name"]))
    return _make_invalid(str(read["name"]), call["args"], read["id"], error)


def _make_invalid(name: str, arguments: object, call_id: str | None, error: str) -> InvalidToolCall:
    return InvalidToolCall(
        type="invalid_tool_call",
        name=name,
        args=arguments_as_text(arguments),
        id=call_id,
        error=error,
    )


def _describe_unfit(name: str, why: str) -> str:
    return UNFIT.format(name=name, why=why)
