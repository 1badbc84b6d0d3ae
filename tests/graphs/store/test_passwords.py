"""Handles of sessions in a database that demands a password, and texts that hide the password."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from duologue import (
    Result,
    Scenario,
    Session,
    StoreError,
    chat,
    converse,
    load_session,
    role_play,
    run_batch,
    simulate,
    stream,
)
from duologue.graphs.events import SessionStarted
from duologue.nodes.testing import ScriptedChatModel

pytestmark = pytest.mark.live

PASSWORD = "p@ss/w:o?r#d %&=+'ü"  # noqa: S105  # of the role that the test creates
GARDEN = role_play("Plan a garden", "Cook", "Gardener", specify_task=False)
SCRIPT = ["Instruction: Dig.\nInput: None", "Solution: Dug.\nNext request.", "<CAMEL_TASK_DONE>"]
CELLS = {
    "conversation": {"kind": "role_play", "task": "Dig", "specify_task": False},
    "vary": {"user_role": ["Cook"], "assistant_role": ["Gardener"]},
    "score": ["length"],
}


class Role(NamedTuple):
    """A role of the database, with its own schema."""

    name: str
    query: str
    """The part of an address that names the server and the schema."""
    place: str
    """The part of an address that names the machine and the database."""


@pytest.fixture
def role(postgres_server: str) -> Iterator[Role]:
    """Create a role with a password that has special characters."""
    name = f"role_{uuid4().hex}"
    place, _, query = postgres_server.partition("?")
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        make = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
        connection.execute(make.format(sql.Identifier(name), sql.Literal(PASSWORD)))
        own = sql.SQL("CREATE SCHEMA {0} AUTHORIZATION {0}")
        connection.execute(own.format(sql.Identifier(name)))
        schema = f"options=-csearch_path%3D{name}"
        query = "&".join(part for part in (query, schema) if part)
        yield Role(name, query, place.rpartition("@")[2])
        drop = sql.SQL("DROP SCHEMA {0} CASCADE; DROP ROLE {0}")
        connection.execute(drop.format(sql.Identifier(name)))


def _in_front(role: Role) -> str:
    return f"postgresql://{role.name}:{quote(PASSWORD, safe='')}@{role.place}?{role.query}"


def _in_query(role: Role) -> str:
    secret = f"user={role.name}&password={quote(PASSWORD, safe='')}"
    return f"postgresql://{role.place}?{role.query}&{secret}"


def _in_environment(role: Role) -> str:
    return f"postgresql://{role.name}@{role.place}?{role.query}"


@pytest.fixture(params=[_in_front, _in_query, _in_environment], ids=lambda way: way.__name__[1:])
def address(role: Role, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    way: Callable[[Role], str] = request.param
    if way is _in_environment:
        monkeypatch.setenv("PGPASSWORD", PASSWORD)
    return way(role)


def _model(*lines: Any) -> ScriptedChatModel:
    return ScriptedChatModel(script=[*(lines or SCRIPT)])


def _run(store: str | None) -> Result:
    return converse(GARDEN, model=_model(), store=store)


def _by_event(store: str | None) -> Session:
    first, *_ = stream(GARDEN, model=_model(), store=store)
    assert isinstance(first, SessionStarted)
    return Session(first.session, store=first.store)


def _by_answer(store: str | None) -> Session:
    asked = converse(chat(end_chat={"max_iterations": 1}), model=_model("Hello."), store=store)
    assert asked.pending
    return asked.session.answer("Hi.", model=_model("Hello.")).session


def _by_simulation(store: str | None) -> Session:
    user = ScriptedChatModel(lambda prompt: "Refund it.")
    scenario = Scenario("Get a refund", max_iterations=1)
    return simulate(scenario, lambda messages: "No.", model=user, store=store).session


def _by_score(store: str | None) -> Session:
    scored: list[Session] = []

    def length(result: Result) -> float:
        scored.append(result.session)
        return 1.0

    model = ScriptedChatModel(lambda prompt: "<CAMEL_TASK_DONE>")
    run_batch(CELLS, name=uuid4().hex, scores={"length": length}, model=model, store=store)
    return scored[0]


WAYS: dict[str, Callable[[str | None], Session]] = {
    "result": lambda store: _run(store).session,
    "event": _by_event,
    "state": lambda store: Session(_run(store).session.id, store=store).state().session,
    "fork": lambda store: _run(store).session.fork(at=1).resume(model=_model(*SCRIPT[1:])).session,
    "copy": lambda store: _run(store).session.copy(into=uuid4().hex),
    "load": lambda store: load_session(_run(store).session.dump(), into=uuid4().hex, store=store),
    "message": lambda store: _run(store).session.add_message("Cook", "Dig deeper.").session,
    "answer": _by_answer,
    "simulation": _by_simulation,
    "score": _by_score,
}


@pytest.mark.parametrize("way", WAYS)
def test_each_handle_opens_its_store_again(way: str, role: Role) -> None:
    """A handle keeps the password, and shows none."""
    session = WAYS[way](_in_front(role))
    result = session.state()
    assert session.dump()["session"] == session.id
    shown = [repr(session), repr(result), str(result), session.export("html"), repr(session.dump())]
    for text in shown:
        assert PASSWORD not in text
        assert quote(PASSWORD, safe="") not in text


def test_a_session_in_a_store_with_a_password_goes_on(address: str) -> None:
    """All methods of a handle work, wherever the address has its password."""
    result = converse(GARDEN, model=_model(), store=address)
    handle = result.session
    assert handle.state() == result
    fork = handle.fork(at=1)
    assert fork.resume(model=_model(*SCRIPT[1:])).stop_reason == "done_token"
    assert handle.add_message("Cook", "Dig deeper.").session.export("markdown")
    handle.delete()
    with pytest.raises(Exception, match="There is no session") as error:
        handle.state()
    assert quote(PASSWORD, safe="") not in str(error.value)


def test_the_store_of_the_settings_can_have_a_password(
    role: Role, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result's handle keeps the address even after the setting has changed."""
    monkeypatch.setenv("DUOLOGUE_STORE", _in_front(role))
    result = converse(GARDEN, model=_model())
    monkeypatch.setenv("DUOLOGUE_STORE", "memory:other")
    assert result.session.state() == result


def test_the_first_event_hides_the_password(role: Role) -> None:
    """The event shows and dumps the address without the password."""
    first, *_ = stream(GARDEN, model=_model(), store=_in_front(role))
    for text in (repr(first), str(first), first.model_dump_json(), repr(first.model_dump())):
        assert f"{role.name}:***@" in text
        assert quote(PASSWORD, safe="") not in text


@pytest.mark.parametrize("password", ["pa@w0rd", "pa/w0rd", "pa@:w0rd", "@w0rd", "a@b:c@w0rd"])
def test_no_error_quotes_a_password_that_is_not_encoded(password: str) -> None:
    """The driver would read a part of the password as the host, and quote it."""
    with pytest.raises(StoreError, match="special characters as %XX") as error:
        Session("one", store=f"postgresql://user:{password}@localhost:1/x").state()
    assert "w0rd" not in str(error.value)
