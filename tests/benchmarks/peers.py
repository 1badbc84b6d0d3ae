"""The same conversation of two speakers as people would write it by hand, without duologue.

Each function sends a number of messages with the same prompts, and calls `mark` after each.
"""

import os
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import httpx2
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from openai import AsyncOpenAI
from typing_extensions import TypedDict

Mark = Callable[[], None]

TASK = "Plan a kitchen garden of forty beds for a family of five."
NAMES = ("Ann", "Bob")


def system_prompt(name: str) -> str:
    """Return a speaker's system prompt."""
    other = NAMES[1 - NAMES.index(name)]
    return f"You are {name}, in a conversation with {other}.\n\nThe task: {TASK}"


def seen_by(name: str, log: list[tuple[str, str]]) -> list[dict[str, str]]:
    """Return the messages as one of the two speakers sees them."""
    prompt = [{"role": "system", "content": system_prompt(name)}]
    for speaker, text in log:
        prompt.append({"role": "assistant" if speaker == name else "user", "content": text})
    return prompt


def turns(count: int) -> Iterator[str]:
    """Yield the names of the speakers in turn."""
    return islice(cycle(NAMES), count)


async def raw_http(count: int, mark: Mark, store: Path) -> None:
    """POST each request, and keep the messages in a list."""
    log: list[tuple[str, str]] = []
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    async with httpx2.AsyncClient() as client:
        for name in turns(count):
            body = {"model": "speaker", "messages": seen_by(name, log)}
            answer = await client.post(url, json=body)
            log.append((name, answer.json()["choices"][0]["message"]["content"]))
            mark()


async def openai_client(count: int, mark: Mark, store: Path) -> None:
    """Use OpenAI's client as documented."""
    await _with_client(count, mark, lambda prompt: {"messages": prompt})


async def openai_extra_body(count: int, mark: Mark, store: Path) -> None:
    """Use OpenAI's client, but bypass its traversal of the messages."""
    await _with_client(
        count, mark, lambda prompt: {"messages": [], "extra_body": {"messages": prompt}}
    )


async def _with_client(
    count: int, mark: Mark, given: Callable[[list[dict[str, str]]], dict[str, Any]]
) -> None:
    log: list[tuple[str, str]] = []
    async with AsyncOpenAI() as client:
        for name in turns(count):
            prompt = given(seen_by(name, log))
            answer = await client.chat.completions.create(model="speaker", **prompt)
            log.append((name, answer.choices[0].message.content or ""))
            mark()


class State(TypedDict):
    """The state of the hand-written graph."""

    messages: Annotated[list[AnyMessage], add_messages]


async def langgraph_by_hand(count: int, mark: Mark, store: Path) -> None:
    """Use LangGraph with its own reducer, saver and client, as its documentation shows."""
    model = ChatOpenAI(model="speaker")

    async def speak(name: str, state: State) -> dict[str, list[AnyMessage]]:
        prompt: list[AnyMessage] = [SystemMessage(system_prompt(name))]
        for message in state["messages"]:
            kind = AIMessage if message.name == name else HumanMessage
            prompt.append(kind(message.content))
        answer = await model.ainvoke(prompt)
        answer.name = name
        mark()
        return {"messages": [answer]}

    async def ann(state: State) -> dict[str, list[AnyMessage]]:
        return await speak("Ann", state)

    async def bob(state: State) -> dict[str, list[AnyMessage]]:
        return await speak("Bob", state)

    def goes_on(state: State) -> str:
        return END if len(state["messages"]) >= count else "ann"

    builder = StateGraph(State)
    builder.add_node("ann", ann)
    builder.add_node("bob", bob)
    builder.add_edge(START, "ann")
    builder.add_edge("ann", "bob")
    builder.add_conditional_edges("bob", goes_on)
    async with AsyncSqliteSaver.from_conn_string(str(store)) as saver:
        graph = builder.compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": uuid4().hex}, "recursion_limit": 2 * count}
        await graph.ainvoke({"messages": []}, config)
