"""Uses that type checkers must accept: all allowed arguments. Checked, never run."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command
from pydantic import BaseModel

from duologue.graphs import (
    BatchRun,
    CodeFormat,
    Conversation,
    DoneToken,
    EndChat,
    EndChatMode,
    Guards,
    Handoff,
    HumanReply,
    InterruptOn,
    LabelledFormat,
    LastMessages,
    MaxCalls,
    MaxCost,
    MaxMessages,
    MaxSeconds,
    ModelReply,
    ModelSettings,
    Moderator,
    Opening,
    Predicate,
    Price,
    PrivateOpening,
    Question,
    Sandbox,
    SchemaFormat,
    SeparateJudge,
    Session,
    Speaker,
    TaskSpecification,
    TextReply,
    ToolCalled,
    TurnFunction,
    aconverse,
    ask,
    blogger,
    build_graph,
    chat,
    coder,
    converse,
    group_solve,
    load_conversation,
    remember,
    role_play,
    stream,
    user_proxy,
)
from duologue.graphs.events import (
    ConversationEnded,
    MessageSaid,
    MessageStarted,
    MessageToken,
    Notice,
    QuestionAsked,
    ThoughtReceived,
    ToolCallFinished,
    ToolCallRequested,
)
from duologue.nodes.testing import Reply, ScriptedChatModel, ScriptedToolCall
from duologue.tools import Hook, Turn


class Plan(BaseModel):
    steps: list[str]


def search(query: str) -> str:
    """Search the web."""
    return query


@tool
def weather(place: str) -> str:
    """Return the weather."""
    return place


def shout(turn: Turn, reply: AIMessage) -> AIMessage:
    return AIMessage(reply.text.upper())


def greet(turn: Turn) -> str | None:
    return "Hello." if not turn.messages else None


def done(messages: Sequence[BaseMessage]) -> bool:
    return len(messages) > 2


def alternate(messages: Sequence[BaseMessage], names: Sequence[str]) -> str:
    return names[len(messages) % 2]


ann = Speaker(
    name="Ann",
    system_prompt="You lead.",
    task="Lead.",
    tools=[search, weather, "clock", "server.find"],
    hooks=[Hook(after_speaker=shout), "log"],
    replies=[greet, "human", {"kind": "text", "text": "Yes."}, ModelReply()],
    format={"kind": "schema", "name": Plan, "form": "text"},
    examples=[
        {"role": "user", "content": "Hi."},
        ("assistant", "Ho."),
        HumanMessage("Hi."),
        AIMessage("Ho."),
    ],
    memory=["Hi.", HumanMessage("Hi.", name="Bob")],
    model_settings={"temperature": 0, "stop": ["END"]},
    context={"kind": "last", "limit": 4},
    prefixes={"Bob": "Bob says: "},
    interrupt_on={"clock": True, "server.find": {"allowed_decisions": ["approve"]}},
    private_opening={"lines": ["You know."]},
    checks_completion=True,
    tool_calling="native",
    on_length="retry",
)
bob = Speaker(
    name="Bob",
    tools=(search,),
    replies=("model",),
    format=LabelledFormat(lines=["Plan:"], optional=[]),
    model_settings=ModelSettings(stop=["END"], max_tokens=9),
    interrupt_on={search: InterruptOn(allowed_decisions=["approve", "edit"])},
    private_opening=PrivateOpening(lines=["You know."]),
    context=LastMessages(limit=3),
    small_model_prompt={"system_prompt": "Lead.", "reminder": "Lead."},
)
cy = Speaker(name="Cy", format=SchemaFormat(Plan), replies=[HumanReply(human_input_mode="never")])
dee: dict[str, Any] = {"name": "Dee", "tools": [search]}
eve = {"name": "Eve"}

conversations: list[Conversation] = [
    Conversation(task="Plan.", speakers=[ann, bob, dee, eve, {"name": "Flo", "tools": ["clock"]}]),
    Conversation(task="Plan.", speakers=(ann, bob), end_chat="all_task_must_complete"),
    Conversation(
        title="T",
        task="Plan.",
        speakers=[ann, {"name": "Gus"}],
        turn_order=TurnFunction(alternate),
        judge=SeparateJudge(criteria=["It is done."]),
        sandbox="monty",
        prices={"m": Price(input=1, output=2), "n": {"input": 1, "output": 2}},
        prompts={"new_task": "Do {task}.", "other": {"name": "x"}},
        opening={"first_speaker": "Ann"},
        task_specification={"word_limit": 30, "model_settings": {"temperature": 1}},
        end_chat=EndChat(
            mode="END_CHAT_AFTER_FIRST_COMPLETION",
            max_iterations=None,
            when=[DoneToken(token="DEAL", answered=True) | MaxMessages(limit=9), Predicate(done)],
            allow_unanswered_end=True,
            guards={"echo": 0},
        ),
        seed=3,
    ),
    Conversation(
        task="Plan.",
        speakers=[ann, bob],
        turn_order="moderator",
        judge={"criteria": ["It is done."]},
        sandbox=Sandbox(level="monty"),
        opening=Opening(answers=True),
        task_specification=TaskSpecification(word_limit=9),
        end_chat={"max_iterations": 9, "when": {"kind": "max_cost", "limit": 1}},
    ),
    Conversation(
        task="Plan.",
        speakers=[ann, bob],
        turn_order=Moderator(prompt="You moderate."),
        end_chat=EndChat(
            mode=EndChatMode.ALL_TASK_MUST_COMPLETE,
            when=ToolCalled(tool=search) & ToolCalled(tool="clock", by="Ann"),
            guards=Guards(echo=0),
        ),
    ),
    Conversation(
        task="Plan.",
        speakers=[ann, bob],
        turn_order={"kind": "round_robin"},
        end_chat=EndChat(when="stop_requested"),
    ),
    Conversation(
        task="Plan.",
        speakers=[ann.replace(tools=[search], speaks_to=["Bob"]), bob.replace(name="Bob")],
        turn_order=Handoff(to={"Ann": ["Bob"], "Bob": ("Ann",)}, private=True),
    ),
    role_play(
        "Plan a garden",
        "Owner",
        assistant_role="Gardener",
        user={"tools": ["get_history"], "format": None},
        assistant=Speaker(name="Gardener", tools=[weather]),
        mode="all_task_must_complete",
        max_iterations=3,
        people=["Owner"],
        end_chat={"when": MaxCost(limit=1)},
        prices={"m": {"input": 1, "output": 2}},
        judge={"criteria": ["It is done."]},
        seed=7,
        temperature=0.5,
    ),
    role_play("Plan", "Owner", "Gardener", user=eve, mode=EndChatMode.MAX_ITERATIONS_ONLY),
    blogger("Bees", writer="W", critic={"name": "C", "model": "m"}, rounds=2, people=("W",)),
    coder("Add.", coder={"tools": [search]}, executor="E", sandbox="monty", executions=2),
    coder("Add.", sandbox={"level": "monty"}, end_chat=EndChat(min_iterations=1)),
    chat(),
    chat(
        "Hi.",
        user="Bob",
        assistant=dee,
        tools=[search, weather, "clock"],
        interrupt_on={search: True},
        max_iterations=None,
    ),
    user_proxy(
        "Hi.",
        human_input_mode="NEVER",
        is_termination=done,
        functions=[greet, "other"],
        tools=(search,),
        user={"keep_self_reflection": True},
        sandbox="bubblewrap",
    ),
    user_proxy("Hi.", human_input_mode="NEVER", interrupt_on={"mail": InterruptOn()}),
    group_solve(
        [ann, eve, {"name": "Hal", "task": "Help."}],
        shift_owner="Ann",
        end_chat="all_task_must_complete",
    ),
    role_play("Plan", "Owner", "Gardener", end_chat=MaxMessages(limit=3)),
    blogger("Bees", end_chat=DoneToken(token="DEAL") | MaxMessages(limit=12)),
    coder(
        "Add.", end_chat=MaxSeconds(limit=9), coder_prompt="You solve {task}", temperature="unset"
    ),
    chat(end_chat=[MaxMessages(limit=3)], task="Talk.", title=None, seed=1, prompts={"x": "y"}),
    user_proxy("Hi.", end_chat={"kind": "max_calls", "limit": 3}, default_auto_reply=None),
    group_solve(speakers=(ann, bob), end_chat=MaxCost(limit=1) & MaxCalls(limit=3), task="All."),
    load_conversation({"kind": "chat", "message": "Hi."}),
    load_conversation("garden.toml"),
]
ends = [MaxCost(limit=1) | DoneToken(token="X"), CodeFormat(languages=["python"])]
by_position = [
    Conversation("Agree on a price.", [Speaker("Ann", "You sell."), eve], seed=3),
    Conversation(None, speakers=[ann, bob]),
    Conversation(speakers=[ann, bob]),
]
ends_by_position = [
    DoneToken("DEAL", by="Ann") | MaxMessages(12) | MaxSeconds(60) | MaxCost(0.5, by="Ann"),
    ToolCalled(search, by="Ann") & ToolCalled("clock"),
]
parts_by_position = [
    LastMessages(3),
    LabelledFormat(["Plan:"], optional=[]),
    CodeFormat(["python"], required=True),
    TextReply("Yes.", once=True),
    HumanReply("never"),
    InterruptOn(["approve"]),
    SeparateJudge(["It is done."], final_verdict=False),
    Handoff({"Ann": ["Bob"]}),
    Sandbox("monty", seconds=5),
    Price(1, 2.5),
]
changed = conversations[0].replace(
    end_chat={"max_iterations": 9}, speakers={"Ann": {"tools": [search]}}, seed=3
)
reply = TextReply(text="Yes.", once=True)

call = ScriptedToolCall(name="search", args={"query": "beans"}, id="1")
model = ScriptedChatModel(script=["Hi.", Reply(tool_calls=[call]), "Ho.", {"complete": True}])


def answer(question: Question) -> object:
    if question.kind == "message":
        return question.prompt
    if question.kind == "approval":
        return {"decisions": [{"type": "approve"} for _ in question.action_requests]}
    return json.dumps(question.value)


result = converse(
    changed,
    session="s",
    model=model,
    models={"m": model},
    store="memory:",
    tools=[search, weather],
    functions={"greet": greet},
    hooks={"log": Hook(), "old": None},
    schemas={"Plan": Plan},
    predicates={"done": done},
    orders={"alternate": alternate},
    prompts={"x": "Do {task}."},
    mcp_servers={"server": {"command": "server", "args": ["--quiet"]}},
    callbacks=[UsageMetadataCallbackHandler()],
    answer=answer,
    durability="async",
    context={"user": "Zoe"},
    runtime_store=InMemoryStore(),
    message="More?",
)
for name, text in result.transcript:
    print(name.upper(), text.upper())
print(result.parsed("Ann")[0]["steps"], result.conversation.end_chat.mode.value)
if result.outcome:
    print(result.outcome.reason.value, result.outcome.usage)
result = Session("s", store="memory:").answer({"decisions": []}, tools=[search])
branch = result.session.fork(at=result.messages[-1], into="t", end_chat={"max_iterations": 9})
result = branch.resume(model="m", durability="async")
reason: str | None = branch.add_message("Ann", "Hi.").stop_reason
for event in branch.stream(message="More?"):
    if event.event == "token":
        print(event.text.upper(), branch.id.upper())
rows: list[dict[str, Any]] = BatchRun("b").rows()
for event in stream({"task": "x", "speakers": [eve, eve]}, session="s", model=model):
    if event.event == "message":
        print(event.text.upper())
    match event:
        case MessageSaid(speaker=who, text=said, has_tool_calls=False):
            print(who.upper(), said.upper())
        case MessageToken() | MessageStarted() | ThoughtReceived() | Notice():
            pass
        case ToolCallRequested(name=name, arguments=arguments):
            print(name.upper(), len(arguments))
        case ToolCallFinished(failed=True, text=problem):
            print(problem.upper())
        case QuestionAsked(question=question):
            print(question.kind)
        case ConversationEnded(reason=reason):
            print(reason.value.upper(), event.rounds + 1)
        case _:
            print(event.event.upper())


asked = ask(eve, "What is left?", session="e", schema=Plan, tools=[weather], model=model)
print(asked.text.upper(), Plan.model_validate(asked.output), asked.output["steps"])
ask(
    {"name": "Fay", "tools": [search]},
    "Hi.",
    end_when=MaxCalls(limit=3) | MaxSeconds(limit=9),
    seed=1,
    user="Ed",
)
older = remember(eve, asked, result, words=80, model=model).replace(task="Go on.", tools=[search])
group_solve([older, remember({"name": "Gus"}, asked, name="Eve").replace(name="Hal")])


async def main() -> None:
    found = await aconverse("garden.toml", tools=(search,), session=branch)
    print((await found.session.aprompt("Ann"))[0].text, (await branch.astate()).text)
    async for event in branch.astream():
        print(event.event)
    print(found.last_message("Ann"))


asyncio.run(main())
graph = build_graph(model=model, tools=[search])
graph.invoke({"conversation": role_play("Plan", "Owner", "Gardener"), "messages": "Hi."})
graph.invoke({"conversation": {"task": "Plan.", "speakers": [{"name": "Ann"}, {"name": "Bob"}]}})
served = build_graph(conversation="garden.toml", name="garden", description="Plans gardens.")
history: list[AnyMessage] = [HumanMessage("Hi.")]
for messages in ("Hi.", ("user", "Hi."), [{"role": "user", "content": "Hi."}], history):
    print(served.invoke({"messages": messages})["messages"][-1].text)
served.invoke({})
served.invoke(Command(resume="exit"))
print(build_graph(conversation={"kind": "chat"}).name, build_graph(conversation=conversations[0]))


async def serve() -> None:
    print(await served.ainvoke({"messages": [{"role": "user", "content": "Hi."}]}))
    async for part in graph.astream({"conversation": conversations[0]}, stream_mode="updates"):
        print(part)


asyncio.run(serve())
