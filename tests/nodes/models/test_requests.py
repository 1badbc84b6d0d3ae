"""Requests for completions are those of OpenAI's client, and their failures are its exceptions."""

import json
import ssl
from typing import Any, Final

import anyio
import httpx2
import openai
import pytest

from duologue.nodes.models.client.http_client import request_completion

PAYLOAD: Final = {"model": "m", "messages": [{"role": "user", "content": "ünïcode \U0001f600"}]}

SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "nothing": {},
    "environment": {
        "environ": {
            "OPENAI_ORG_ID": "org",
            "OPENAI_PROJECT_ID": "project",
            "OPENAI_CUSTOM_HEADERS": "X-Gateway: one\nX-Other: two",
        }
    },
    "own authorization": {"environ": {"OPENAI_CUSTOM_HEADERS": "Authorization: Basic abc"}},
    "extra headers": {"more": {"extra_headers": {"x-one": "1", "OpenAI-Organization": "other"}}},
    "an extra cookie": {"more": {"extra_headers": {"Cookie": "mine=1"}}, "cookies": {"sid": "2"}},
    "extra body": {"more": {"extra_body": {"top_k": 3, "model": "other"}}},
    "a large number": {"more": {"extra_body": {"seed": 10**30}}},
    "cookies of a gateway": {"cookies": {"__cf_bm": "abc"}},
    "a query": {"options": {"base_url": "https://server/openai?api-version=1"}},
    "a path with a slash": {"options": {"base_url": "https://server/v1/"}},
    "a name and a password": {"options": {"base_url": "https://name:password@server/v1"}},
    "times": {"options": {"timeout": openai.Timeout(7, connect=2, pool=None)}},
    "no time limit": {"options": {"timeout": None}},
}

ANSWERS: Final[dict[str, list[httpx2.Response | Exception]]] = {
    "a reply": [httpx2.Response(200, json={"a": 1})],
    "a redirect": [
        httpx2.Response(307, headers={"location": "https://other/v1"}),
        httpx2.Response(200, json={"a": 1}),
    ],
    "a redirect to nowhere": [httpx2.Response(304)],
    "an endless redirect": [httpx2.Response(307, headers={"location": "https://other/v1"})] * 30,
    **{
        f"status {status}": [
            httpx2.Response(status, json={"error": {"message": "no", "code": "c", "param": "p"}})
        ]
        for status in (400, 401, 403, 404, 408, 409, 418, 422, 429, 500, 503)
    },
    "a page": [httpx2.Response(502, text=" <html>Bad gateway</html> ")],
    "a text": [httpx2.Response(500, json="no")],
    "a list": [httpx2.Response(400, json=[{"error": {"message": "no"}}])],
    **{
        type(error).__name__: [error]
        for error in (
            httpx2.ReadTimeout("slow"),
            httpx2.ConnectTimeout("slow"),
            httpx2.PoolTimeout("full"),
            httpx2.ConnectError("refused"),
            httpx2.RemoteProtocolError("half"),
            httpx2.UnsupportedProtocol("what"),
            httpx2.DecodingError("packed"),
            ssl.SSLError("TLS"),
            anyio.EndOfStream(),
            KeyError("not of a connection"),
        )
    },
}


async def _call(case: dict[str, Any], answers: list[Any], *, ours: bool, stream: bool) -> list[Any]:
    """Return the requests of two calls, and the reply or the exception of each."""
    seen: list[Any] = []
    left: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        headers = {**request.headers}
        # A backslash escape and the character itself mean the same.
        del headers["content-length"]
        seen.append((request.method, str(request.url), headers, json.loads(request.content)))
        seen.append(request.extensions["timeout"])
        given = left.pop(0)
        if isinstance(given, Exception):
            raise given
        return httpx2.Response(given.status_code, headers=given.headers, content=given.content)

    http = httpx2.AsyncClient(
        transport=httpx2.MockTransport(answer),
        cookies=case.get("cookies"),
        follow_redirects=True,
    )
    options = {"base_url": "https://server/v1", "timeout": 9.0} | case.get("options", {})
    client = openai.AsyncOpenAI(api_key="k", max_retries=0, http_client=http, **options)
    for _ in range(2):
        left[:] = answers
        payload = PAYLOAD | case.get("more", {})
        try:
            if ours:
                response = await request_completion(client, payload, stream=stream)
            else:
                headers = payload.pop("extra_headers", {})
                raw: Any = await client.post(
                    "/chat/completions",
                    cast_to=object,
                    body=payload | payload.pop("extra_body", {}),
                    options={"headers": {**headers, "X-Stainless-Raw-Response": "true"}}
                    if not stream
                    else {"headers": headers},
                    stream=stream,
                    stream_cls=openai.AsyncStream[object],
                )
                response = raw.response if stream else raw.http_response
            seen.append(await response.aread())
        except (openai.APIError, KeyError) as error:
            seen.append((type(error), str(error), vars(error).get("body"), type(error.__cause__)))
            seen.append([getattr(error, name, None) for name in ("status_code", "code", "param")])
    await http.aclose()
    return seen


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_is_that_of_openais_client(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = []
    cases = [(name, case, ANSWERS["a reply"]) for name, case in SETTINGS.items()]
    cases += [(name, {}, answers) for name, answers in ANSWERS.items()]
    for name, case, answers in cases:
        with monkeypatch.context() as patch:
            for variable, value in case.get("environ", {}).items():
                patch.setenv(variable, value)
            theirs, ours = [
                await _call(case, answers, ours=ours, stream=stream) for ours in (False, True)
            ]
        if ours != theirs:
            failed.append(f"{name}:\n{theirs}\n{ours}")
    assert not failed, "\n\n".join(failed)
