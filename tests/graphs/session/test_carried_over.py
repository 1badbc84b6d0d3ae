"""A speaker in several conversations: its memory, or a summary of it, goes along.

The sources are Yacana's solo tasks before a group solve (Y16), and Lagent's memory (L2).
"""

import json
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import add_messages

from duologue.graphs import (
    Conversation,
    Result,
    Session,
    Speaker,
    SpecError,
    ask,
    converse,
    group_solve,
    load_conversation,
    load_session,
    remember,
    role_play,
)
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from support.shape_help import shown, texts

MASTER = Speaker(name="Master", system_prompt="You lead a game.")


@pytest.fixture
def store() -> str:
    return f"memory:{uuid4().hex}"


def model_of(*script: Line) -> ScriptedChatModel:
    return ScriptedChatModel(script=[*script])


def higher(secret: int, guess: int) -> str:
    """Compare two numbers."""
    return "higher" if secret > guess else "not higher"


def called() -> Reply:
    args = {"secret": 14, "guess": 7}
    return Reply(tool_calls=[ScriptedToolCall(name="higher", args=args, id="call_1")])


def seen(result: Result, name: str) -> list[str]:
    """Return a speaker's view without its system prompt."""
    return shown(result.viewpoint(name)[1:])


def pair(first: Speaker | dict[str, Any], **fields: Any) -> Conversation:
    return Conversation(
        **{
            "task": "Play.",
            "speakers": (first, {"name": "Player", "system_prompt": "You guess."}),
            "end_chat": {"max_iterations": 1},
        }
        | fields
    )


def test_tasks_solved_alone_come_before_a_group_and_stay_private(store: str) -> None:
    """Y16, Y4, Y5: as in Yacana's number game, a speaker's history continues after its task."""
    model = model_of("Quince.", "Guess!", "Is it 7?", "Is it 8?", "Higher.")
    secret = ask(MASTER, "Choose a word.", model=model, store=store)
    game = group_solve(
        [
            remember(MASTER.replace(task="Answer the guesses."), secret),
            {"name": "Player", "task": "Guess the word."},
        ],
        end_chat={"max_iterations": 1},
    )
    result = converse(game, model=model, store=store)
    assert seen(result, "Master") == [
        *("u:Choose a word.", "a:Quince.", "u:Answer the guesses.", "a:Guess!"),
        *("u:Is it 8?", "a:Higher."),
    ]
    assert seen(result, "Player") == [
        *("u:Guess the word.", "a:Is it 7?", "u:Guess!", "a:Is it 8?", "u:Higher."),
    ]
    assert "Quince" not in str([call.messages for call in model.calls if call.speaker == "Player"])
    # Each prompt is the beginning of its speaker's next one, memory included.
    first, second = [texts(call) for call in model.calls[1:] if call.speaker == "Master"]
    assert second[: len(first)] == first
    assert result.outcome is not None
    assert (result.outcome.rounds, result.outcome.messages) == (1, 4)


def test_several_conversations_are_remembered_in_order_each_call_with_its_result(
    store: str,
) -> None:
    """Y18: equal call ids in different conversations keep their own results."""
    able = MASTER.replace(tools=[higher])
    model = model_of(called(), "One.", called(), "Two.", called(), "Three.", "Ah.")
    both = [ask(able, text, model=model, store=store) for text in ("First?", "Second?")]
    result = converse(pair(remember(able, *both)), model=model, store=store)
    told = ("a:", "t:higher")
    assert seen(result, "Master") == [
        *("u:First?", *told, "a:One.", "u:Second?", *told, "a:Two."),
        *("u:Please begin.", *told, "a:Three.", "u:Ah."),
    ]
    view = result.viewpoint("Master")
    ids = [call["id"] for one in view if isinstance(one, AIMessage) for call in one.tool_calls]
    assert len({*ids}) == 3


def test_a_speaker_goes_through_conversations_of_any_kind_under_another_name(store: str) -> None:
    """L3: its own messages stay its own; a stranger with its new name is another speaker."""
    model = model_of("Seven?", "Yes.", "Right.", "So it was.")
    first = converse(pair({"name": "Boss", "system_prompt": "You lead."}), model=model, store=store)
    leader = remember({"name": "Player", "system_prompt": "You led."}, first, name="Boss")
    again = Conversation(
        task="Talk.",
        speakers=(leader, {"name": "Boss", "system_prompt": "You listen."}),
        end_chat={"max_iterations": 1},
    )
    result = converse(again, model=model, store=store)
    begin = seen(first, "Boss")[0]
    assert seen(result, "Player") == [
        *(begin, "a:Seven?", f"u:Yes.\n\n{begin[2:]}"),
        *("a:Right.", "u:So it was."),
    ]
    # A memory includes the earlier memory.
    third = remember(leader, result)
    assert [one.text for one in third.memory][:3] == [one.text for one in leader.memory]
    with pytest.raises(KeyError, match="Nobody"):
        remember(leader, result, name="Nobody")


def test_a_summary_takes_the_place_of_every_word(store: str) -> None:
    """The speaker's own model writes the summary in a separate session, within the word limit."""
    model = model_of("Quince.", "You chose Quince and told nobody of it at all.", "Hm.", "Hm?")
    secret = ask(MASTER, "Choose a word.", model=model, store=store)
    short = remember(MASTER, secret, words=6, model=model, store=store)
    asked = model.calls[1].messages
    assert "User: Choose a word.\n\nMaster: Quince." in asked[1].text
    assert [(one.type, one.name) for one in short.memory] == [("human", None)]
    result = converse(pair(short), model=model, store=store)
    (heard, *_) = seen(result, "Master")
    assert heard.startswith("u:Summary of the conversation so far:\nYou chose Quince")
    assert "at all" not in heard
    with pytest.raises(SpecError, match="words: must be a whole number, 1 or more, not 0"):
        remember(MASTER, secret, words=0, model=model, store=store)


def test_what_is_remembered_is_part_of_the_session_whatever_becomes_of_it(store: str) -> None:
    """L2, Z1: memory is dumped, copied, forked, read from a file, and deleted."""
    model = model_of("Quince.", "Guess!", "7?", "Higher.", "8?")
    secret = ask(MASTER, "Choose a word.", model=model, store=store)
    spec = pair(remember(MASTER, secret), end_chat={"max_iterations": 2})
    result = converse(spec, session="game", model=model, store=store)
    view = seen(result, "Master")
    assert view[:2] == ["u:Choose a word.", "a:Quince."]
    assert load_conversation(spec.stored()) == spec
    assert load_conversation(json.loads(json.dumps(spec.stored()))) == spec
    load_session(Session("game", store=store).dump(), into="copy", store=store)
    assert seen(Session("copy", store=store).state(), "Master") == view
    assert "Quince" not in Session("game", store=store).export(format="markdown")
    with pytest.raises(SpecError, match=r"Master\.memory: can't be changed in a fork"):
        Session("game", store=store).fork(speakers={"Master": {"memory": []}})
    forked = Session("game", store=store).fork(end_chat={"max_iterations": 3}).id
    more = model_of("Warm.", "9?")
    assert seen(Session(forked, store=store).resume(model=more), "Master")[: len(view)] == view
    assert texts(more.calls[0])[:2] == view[:2]
    Session("game", store=store).reset(speaker="Master")
    assert "a:Quince." not in seen(Session("game", store=store).state(), "Master")


def test_a_short_context_leaves_out_what_it_came_with_before_its_secret(store: str) -> None:
    """Z4, Y16: a secret invented here is older than the rounds, and is kept."""
    model = model_of(*(f"Old {number}." for number in range(6)), "Secret 5.", *"abcdefgh")
    for number in range(6):
        old = ask(MASTER, f"Question {number}?", session="old", model=model, store=store)
    keeper = remember(
        MASTER.replace(
            private_opening={"prompt": "Make up a number."}, context={"kind": "last", "limit": 4}
        ),
        old,
    )
    result = converse(
        pair(keeper, end_chat={"max_iterations": 4}), session="new", model=model, store=store
    )
    last = [texts(call) for call in model.calls if call.speaker == "Master"][-1]
    assert "a:Secret 5." in last
    assert not any("Old" in text for text in last)
    assert sum("Old" in text for text in seen(result, "Master")) == 6


BROKEN: dict[str, Any] = {"name": "add", "args": {"a": object()}, "id": "c"}


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ({"content": "Hi"}, "must be a LangChain message, .* a dict with role and content"),
        ({"role": "user"}, "must be a LangChain message, .* a dict with role and content"),
        (("user", " "), "the content must not be empty"),
        (("system", "Be kind."), "must be a message of the user, the assistant or a tool, not of"),
        (("poet", "Hi"), r"must be a LangChain message, .* not \('poet', 'Hi'\)"),
        (7, "must be a LangChain message, .* not 7"),
        (AIMessage("", tool_calls=[BROKEN]), "the arguments of 'add' must be a JSON object"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
            "content.0: an address is not opened here",
        ),
    ],
)
def test_what_nobody_can_remember_is_refused(message: Any, told: str) -> None:  # noqa: ANN401
    with pytest.raises(SpecError, match=rf"speakers\.0\.memory\.0: {told}"):
        pair({"name": "Master", "memory": [message]})


def test_a_memory_is_what_add_messages_accepts_and_what_any_model_accepts(store: str) -> None:
    call = {"name": "higher", "args": {"than": 5}, "id": "c"}
    given: list[Any] = [
        "Begin.",
        ("assistant", "Seven?"),
        HumanMessage("No.", name="Player"),
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"type": "tool", "content": "higher", "tool_call_id": "c"},
        AIMessage("Eight?", name="Someone", id="a", usage_metadata=None),
    ]
    spec = pair({"name": "Master", "memory": given})
    assert spec == pair({"name": "Master", "memory": add_messages([], given)})
    assert load_conversation(json.loads(json.dumps(spec.stored()))) == spec
    model = model_of("One.", "Two.")
    result = converse(spec, model=model, store=store)
    memory = result.memory("Master")
    kinds = ["human", "ai", "human", "ai", "tool", "ai", "human", "ai", "human"]
    assert [one.type for one in memory] == kinds
    assert [one.text for one in memory][1:3] == ["Seven?", "No."]
    assert [one.name for one in memory if one.type == "human"] == [None, "Player", None, "Player"]
    # A strict server refuses calls without results, blank texts and invalid names.
    assert model_of("Fine.").invoke([*memory, HumanMessage("Well?")]).text == "Fine."
    again = pair({"name": "Master", "memory": memory})
    assert converse(again, model=model_of("A.", "B."), store=store).memory("Master")[:9] != []
    assert remember({"name": "Master"}, result).memory == again.speakers[0].memory


def test_a_speaker_with_other_fields_keeps_those_that_nobody_set() -> None:
    """A changed speaker keeps the short form's values, which are not compared on resume."""
    talk = role_play("Plan.", "Cook", "Gardener")
    cook = talk.speakers[0]
    able = cook.replace(tools=["get_history"])
    assert (able.tools, able.system_prompt) == (("get_history",), cook.system_prompt)
    assert able.model_fields_set == cook.model_fields_set | {"tools"}
    with pytest.raises(SpecError, match="did you mean 'tools'"):
        cook.replace(tool=["get_history"])  # type: ignore[call-arg]


def test_a_memory_that_toml_can_not_hold_is_written_as_json(store: str) -> None:
    call = {"name": "find", "args": {"what": None}, "id": "c"}
    spec = pair(
        MASTER.replace(memory=[{"role": "assistant", "content": "", "tool_calls": [call]}]),
    )
    with pytest.raises(SpecError, match="TOML"):
        spec.to_toml()
    assert load_conversation(json.loads(json.dumps(spec.stored()))) == spec
