"""After any server reply, a conversation continues, or ends with one sentence and can resume."""

import unicodedata
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from pydantic import BaseModel

from drawn.replies import reply
from drawn_faults import Faults
from duologue.graphs import ModelError, Result, Session, converse, load_conversation, stream
from duologue.graphs.events import ConversationEnded
from support.faulty_server import Body, FaultyServer, Sent
from support.tables import read_rows

from .faulty_talk import set_up

pytestmark = pytest.mark.exhaustive

Spec = dict[str, Any]

ANN: Spec = {"name": "Ann"}
BOB: Spec = {"name": "Bob"}
TOOLS: Spec = {"tools": ["calculator", "clock"]}
STOPS: Spec = {"checks_completion": True}


class Plan(BaseModel):
    """A plant and its rows."""

    plant: str
    rows: list[int]


def talk(*speakers: Spec, **fields: object) -> Spec:
    given = {"task": "Plan a garden.", "speakers": list(speakers)}
    return {**given, "end_chat": {"max_iterations": 2}, **fields}


TALKS = read_rows(__file__, "talks")


class Drawing:
    """A server that answers requests with drawn replies, with or without faults."""

    def __init__(self, draw: Random) -> None:
        self._draw = draw
        self.drawn = 0
        self.is_faulty = True

    def answer(self, _: str, body: Body) -> Sent:
        if not self.is_faulty:
            return reply(body, self._draw, faults=0)
        self.drawn += 1
        return reply(body, self._draw, faults=self._draw.choice((0, 0, 1, 1, 2, 5)))


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    set_up(monkeypatch)


def whole(spec: Spec, **options: Any) -> bool:
    return converse(load_conversation(spec), **options).outcome is not None


def streamed(spec: Spec, **options: Any) -> bool:
    return isinstance(list(stream(load_conversation(spec), **options))[-1], ConversationEnded)


def failure(run: Callable[..., bool], spec: Spec, **options: Any) -> ModelError | None:
    try:
        assert run(spec, **options)
    except ModelError as error:
        return error
    return None


def is_one_sentence(error: ModelError) -> bool:
    said = str(error)
    return len(said) < 2000 and all(unicodedata.category(sign) not in ("Cc", "Cs") for sign in said)


@pytest.mark.parametrize("name", TALKS)
def test_no_drawn_reply_ends_in_anything_but_an_answer_or_one_sentence(
    name: str, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawing = Drawing(faults.random(name))
    wanted = faults.times(18)
    talks, failed = 0, 0
    with FaultyServer(drawing.answer) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        while drawing.drawn < wanted:
            run = (whole, streamed)[talks % 2]
            store, schemas = f"memory:{name.replace(' ', '-')}-{talks}", {"plan": Plan}
            talks += 1
            drawing.is_faulty = True
            error = failure(run, TALKS[name], session="s", store=store, schemas=schemas)
            if error is None:
                continue
            failed += 1
            assert is_one_sentence(error)
            drawing.is_faulty = False
            assert Session("s", store=store).resume(schemas=schemas).outcome is not None
    # Some faults are repaired, and some end a conversation.
    assert 0 < failed < drawing.drawn


class Failing(BaseCallbackHandler):
    """A user's own handler that fails."""

    raise_error = True

    def on_llm_end(self, *args: object, **kwargs: object) -> None:
        raise ValueError("mine")


def _to_the_end(spec: Spec, **options: Any) -> Result:
    return converse(load_conversation(spec), **options)


@pytest.mark.parametrize("run", [_to_the_end, streamed])
def test_what_a_handler_raises_is_no_fault_of_the_server(
    run: Callable[..., object], faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = faults.random()
    with FaultyServer(lambda _, body: reply(body, draw, faults=0)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        with pytest.raises(ValueError, match=r"^mine"):
            run(TALKS["plain"], store="memory:handler", callbacks=[Failing()])
