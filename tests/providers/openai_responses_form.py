"""The form of the answers of OpenAI's Responses API."""

from collections.abc import Callable, Iterator
from typing import Any

from duologue.nodes.testing import Reply

from .base import ProviderRequest, usage

INCOMPLETE = ("length", "content_filter")
"""The reasons for which a response is incomplete: openai/types/responses/response.py."""


def output_of(reply: Reply, number: int) -> list[dict[str, Any]]:
    """Return the items of a response: thoughts, a message, calls of functions."""
    found: list[dict[str, Any]] = []
    if reply.reasoning:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        found.append({"type": "reasoning", "id": f"rs_{number}", "summary": summary})
    content: dict[str, Any]
    if reply.refusal is not None:
        content = {"type": "refusal", "refusal": reply.refusal}
    else:
        content = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
    if reply.text or reply.refusal is not None or not reply.tool_calls:
        found.append(
            {
                "type": "message",
                "id": f"msg_{number}",
                "role": "assistant",
                "status": "completed",
                "content": [content],
            }
        )
    for index, call in enumerate(reply.tool_calls):
        found.append(
            {
                "type": "function_call",
                "id": f"fc_{number}_{index}",
                "call_id": call.id,
                "name": call.name,
                "arguments": call.arguments,
                "status": "completed",
            }
        )
    return found


def response_of(
    reply: Reply, request: ProviderRequest, number: int, output: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return a response with these items."""
    used = usage(reply, request.prompt)
    reason = {"length": "max_output_tokens"}.get(reply.ending, reply.ending)
    is_cut = reply.ending in INCOMPLETE
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 0,
        "status": "incomplete" if is_cut else "completed",
        "error": None,
        "incomplete_details": {"reason": reason} if is_cut else None,
        "instructions": None,
        "metadata": {},
        "model": request.model,
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": used["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": used["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": used["total_tokens"],
        },
    }


Event = Callable[..., bytes]
"""Makes an event of a type and its fields."""


def item_events(event: Event, item: dict[str, Any], index: int, reply: Reply) -> Iterator[bytes]:
    """Yield the events of one item."""
    place = {"output_index": index, "item_id": item["id"]}
    match item["type"]:
        case "message":
            part = item["content"][0]
            field = "refusal" if part["type"] == "refusal" else "text"
            kind = "refusal" if field == "refusal" else "output_text"
            pieces = reply.pieces if field == "text" else (part["refusal"],)
            yield _begun(event, {**item, "status": "in_progress", "content": []}, index)
            place = {**place, "content_index": 0}
            yield event("response.content_part.added", part={**part, field: ""}, **place)
            if reply.error == "drop":
                pieces = pieces[: len(pieces) // 2]
            for piece in pieces:
                more: dict[str, Any] = {"logprobs": []} if field == "text" else {}
                yield event(f"response.{kind}.delta", delta=piece, **more, **place)
            if reply.error == "drop":
                return
            yield event(f"response.{kind}.done", **{field: part[field]}, **place)
            yield event("response.content_part.done", part=part, **place)
        case "function_call":
            yield _begun(event, {**item, "status": "in_progress", "arguments": ""}, index)
            for piece in _pieces_of(reply, item["call_id"]):
                yield event("response.function_call_arguments.delta", delta=piece, **place)
            yield event(
                "response.function_call_arguments.done", arguments=item["arguments"], **place
            )
        case _:
            yield _begun(event, {**item, "summary": []}, index)
            place = {**place, "summary_index": 0}
            part = item["summary"][0]
            empty = {"type": "summary_text", "text": ""}
            yield event("response.reasoning_summary_part.added", part=empty, **place)
            yield event("response.reasoning_summary_text.delta", delta=part["text"], **place)
            yield event("response.reasoning_summary_part.done", part=part, **place)
    yield event("response.output_item.done", output_index=index, item=item)


def _begun(event: Event, item: dict[str, Any], index: int) -> bytes:
    return event("response.output_item.added", output_index=index, item=item)


def _pieces_of(reply: Reply, call_id: str) -> tuple[str, ...]:
    return next(call.pieces for call in reply.tool_calls if call.id == call_id)
