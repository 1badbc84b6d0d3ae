"""Fixtures for all tests."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from postgres import server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The address of a PostgreSQL server, stopped after the last test."""
    with server() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The address of an empty schema of its own, dropped after the test."""
    import psycopg

    schema = f"t{uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
        sign = "&" if "?" in postgres_server else "?"
        yield f"{postgres_server}{sign}options=-csearch_path%3D{schema}"
        connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())
