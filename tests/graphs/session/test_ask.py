"""Questions to a single agent, with its tools, formats, sessions and approvals.

The models are Lagent's agents, which are called (L1, L2), and Yacana's tasks (Y16, Y18).
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import openai
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.graph import add_messages
from pydantic import BaseModel

from duologue import (
    ApprovalQuestion,
    Conversation,
    MaxCalls,
    ModelError,
    Reason,
    Result,
    Session,
    SessionError,
    Speaker,
    SpecError,
    UnreadableAnswerError,
    aask,
    ask,
    converse,
    group_solve,
    load_conversation,
    load_session,
    remember,
    role_play,
)
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from support.results import outcome_of
from support.shape_help import shown, texts
from support.tables import read_rows

CLASS = "schema: must be a pydantic model's class, which derives from BaseModel"
CHEF = Speaker(name="Chef", system_prompt="You plan meals.")


class Menu(BaseModel):
    starter: str
    courses: int


def price(dish: str) -> str:
    """Return the price of a dish."""
    return f"{dish}: 7"


def calling(tool: str, **args: object) -> Reply:
    return Reply(tool_calls=[ScriptedToolCall(name=tool, args=args, id="call_1")])


def model_of(*script: Line) -> ScriptedChatModel:
    return ScriptedChatModel(script=[*script])


def test_an_agent_answers_once_by_its_prompt_and_no_more(store: str) -> None:
    """L1, L3: there is one call, and the result's text is the answer only."""
    model = model_of("Soup, then fish.")
    answer = ask(CHEF, "Plan a menu.", model=model, store=store)
    assert answer.text == "Soup, then fish."
    assert answer.output == "Soup, then fish."
    assert [shown(call.messages) for call in model.calls] == [
        ["s:You plan meals.", "u:Plan a menu."]
    ]
    assert answer.transcript == [("User", "Plan a menu."), ("Chef", "Soup, then fish.")]
    assert answer.stop_reason == "max_iterations"


def test_one_session_remembers_and_another_does_not_until_it_is_reset(store: str) -> None:
    """L2: the session's id selects the memory, and a prompt is the beginning of the next one."""
    menu = Session("menu", store=store)
    model = model_of("Soup.", "Plums.", "For whom?", "Rice.", "Beans.", "Lentils.")

    def asked(text: str, session: str, **options: Any) -> str:
        return ask(CHEF, text, session=session, model=model, store=store, **options).text

    assert asked("A starter?", "menu") == "Soup."
    assert asked("And a dessert?", "menu") == "Plums."
    assert asked("And a dessert?", "other") == "For whom?"
    menu.reset()
    assert asked("A side dish?", "menu") == "Rice."
    assert asked("Another one?", "menu", reset=True) == "Beans."
    asked_on = menu.stream(message="One more?", model=model)
    assert "".join(one.text for one in asked_on if one.event == "token") == "Lentils."
    first, second, *others = (shown(call.messages) for call in model.calls)
    assert second == [*first, "a:Soup.", "u:And a dessert?"]
    assert [one[1:] for one in others] == [
        ["u:And a dessert?"],
        ["u:A side dish?"],
        ["u:Another one?"],
        ["u:Another one?", "a:Beans.", "u:One more?"],
    ]


async def test_tools_run_before_the_answer_those_of_one_question_too(store: str) -> None:
    """Y18, L6: tools of the agent, and tools of a single question, run before the answer."""
    for agent, options in (
        (CHEF.replace(tools=[price]), {}),
        (CHEF, {"tools": [price]}),
        (CHEF.replace(tools=[price]), {"tools": [price]}),
        ({"name": "Chef", "tools": ["price"]}, {"tools": [price]}),
    ):
        model = model_of(calling("price", dish="Soup"), "It is 7.")
        answer = await aask(agent, "What is soup?", model=model, store=store, **options)  # type: ignore[arg-type]  # both are options
        assert answer.text == "It is 7."
        assert texts(model.calls[1]) == ["u:What is soup?", "a:", "t:Soup: 7"]


@pytest.mark.parametrize("tools", [(), (price,)], ids=["held", "told"])
def test_an_answer_that_must_fit_a_schema_is_read(
    tools: tuple[Callable[..., Any], ...], store: str
) -> None:
    """L5: the result has fields and text; with tools, the schema is in the system prompt."""
    said = json.dumps({"starter": "Soup", "courses": 3})
    model = model_of("Well, soup!", said)
    answer = ask(CHEF, "A menu.", schema=Menu, tools=tools, model=model, store=store)
    assert Menu.model_validate(answer.output) == Menu(starter="Soup", courses=3)
    assert answer.text == said
    assert ("JSON schema" in model.calls[0].messages[0].text) is bool(tools)


@pytest.mark.parametrize("tools", [(), (price,)], ids=["held", "told"])
def test_an_answer_that_fits_no_schema_is_an_error_with_the_last_reply(
    tools: tuple[Callable[..., Any], ...], store: str
) -> None:
    last = "I am a chef, and no clerk. " * 40
    model = model_of("Well, soup!", last)
    with pytest.raises(UnreadableAnswerError, match=r"does not fit 'Menu': .*no clerk") as caught:
        ask(CHEF, "A menu.", session="s", schema=Menu, tools=tools, model=model, store=store)
    assert isinstance(caught.value, ModelError)
    assert (caught.value.reply, caught.value.session) == (last, "s")
    assert len(str(caught.value)) < 600
    assert Session("s", store=store).state().text == last
    # The question can be asked again.
    model = model_of('{"starter": "Soup", "courses": 3}')
    again = ask(CHEF, "Please!", session="s", schema=Menu, tools=tools, model=model, store=store)
    assert again.output == {"starter": "Soup", "courses": 3}


def test_a_blank_answer_fits_no_schema(store: str) -> None:
    with pytest.raises(UnreadableAnswerError) as caught:
        ask(CHEF, "A menu.", schema=Menu, model=model_of("", " "), store=store)
    assert caught.value.reply.strip() == ""


def test_who_wants_no_error_gets_the_answer_without_a_value(store: str) -> None:
    model = model_of("Well, soup!", "Soup, I say.")
    found = ask(CHEF, "?", schema=Menu, on_failure="return", model=model, store=store)
    assert (found.text, found.output) == ("Soup, I say.", None)


def test_an_answer_that_a_budget_prevents_or_a_person_delays_is_no_error(store: str) -> None:
    budget = MaxCalls(limit=1)
    options: dict[str, Any] = {"session": "s", "end_when": budget, "schema": Menu, "store": store}
    assert ask(CHEF, "?", model=model_of('{"starter": "Soup", "courses": 3}'), **options).output
    late = ask(CHEF, "And now?", model=model_of(), **options)
    assert (outcome_of(late).reason, late.text) == (Reason.MAX_CALLS, "")
    careful = CHEF.replace(tools=[price], interrupt_on={"price": True})
    model = model_of(calling("price", dish="Soup"))
    assert ask(careful, "?", schema=Menu, model=model, store=store).pending


@pytest.mark.parametrize(
    "said",
    read_rows(__file__, "r4_an_answer_is_read_as_models_write_it"),
)
def test_r4_an_answer_is_read_as_models_write_it(said: str, store: str) -> None:
    answer = ask(CHEF, "A menu.", schema=Menu, model=model_of(said), store=store)
    assert answer.output == {"starter": "Soup", "courses": 3}


def test_a_call_that_a_person_must_approve_of_waits_and_goes_on(store: str) -> None:
    """G5: a call that needs approval waits, and repeating the question changes nothing."""
    careful = CHEF.replace(tools=[price], interrupt_on={"price": True})
    model = model_of("Hello.", calling("price", dish="Soup"), "It is 7.")
    ask(careful, "Hi!", session="s", model=model, store=store)
    for _ in range(2):
        waiting = ask(careful, "Soup?", session="s", model=model, store=store)
        assert isinstance(waiting.pending[0], ApprovalQuestion)
        assert waiting.text == ""
    with pytest.raises(SessionError, match="waits for another answer"):
        ask(careful, "And rice?", session="s", model=model, store=store)
    decided = {"decisions": [{"type": "approve"}]}
    answer = Session("s", store=store).answer(decided, model=model, tools=[price])
    assert answer.text == "It is 7."
    assert [text for _, text in answer.transcript if text] == ["Hi!", "Hello.", "Soup?", "It is 7."]


def test_what_a_failure_has_left_open_is_answered_once(tmp_path: Path) -> None:
    """The same question again resumes the session, like `resume`; after an answer it is new."""
    store = tmp_path / "new.db"
    for again in (lambda model: ask(CHEF, "Soup?", session="s", model=model, store=store), None):
        with pytest.raises(openai.InternalServerError):
            ask(CHEF, "Soup?", session="s", model=model_of(Reply(error=500)), store=store)
        model = model_of("Yes.")
        answer = again(model) if again else Session("s", store=store).resume(model=model)
        assert answer.text == "Yes."
        assert texts(model.calls[0])[-1] == "u:Soup?"
    asked = [text for name, text in Session("s", store=store).state().transcript if name == "User"]
    assert asked == ["Soup?", "Soup?"]


def test_a_budget_holds_for_all_that_is_asked_in_a_session(store: str) -> None:
    """R10, E3: caps on rounds apply to each question, budgets to the whole session."""
    model = model_of("One.", "Two.")

    def asked() -> tuple[Reason, str]:
        answer = ask(CHEF, "?", session="s", end_when=MaxCalls(2), model=model, store=store)
        return outcome_of(answer).reason, answer.text

    assert [asked() for _ in range(3)] == [
        (Reason.MAX_ITERATIONS, "One."),
        (Reason.MAX_CALLS, "Two."),
        # The log contains the question without an answer.
        (Reason.MAX_CALLS, ""),
    ]


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"session": "s"}, SessionError, r"speakers\.1\.system_prompt differs"),
        ({"session": "no id"}, SessionError, "no id"),
        ({"user": "Chef"}, SpecError, "two speakers are called 'Chef'"),
        ({"tools": "price"}, SpecError, "tools: must be a list of tools"),
        ({"shema": Menu}, TypeError, "there is no option 'shema'; did you mean 'schema'"),
        ({"sesion": "s"}, TypeError, "there is no option 'sesion'; did you mean 'session'"),
        ({"output_type": Menu}, TypeError, "'output_type'; did you mean 'schema'"),
        ({"thread_id": "s"}, TypeError, "'thread_id'; did you mean 'session'"),
        ({"end_chat": {}}, TypeError, "there is no option 'end_chat'; choose one of .*'end_when'"),
        ({"schema": {}}, SpecError, f"{CLASS}, not dict"),
        ({"schema": str}, SpecError, f"{CLASS}, not the class str; write one"),
        ({"schema": list[str]}, SpecError, f"{CLASS}, not GenericAlias; write one"),
        ({"message": "Hi"}, TypeError, "message"),
        ({"on_failure": "ignore"}, SpecError, "on_failure: must be 'raise' or 'return', not 'ign"),
        ({"text": " "}, SpecError, "text: must be text that is not empty"),
        ({"text": "Exit"}, SpecError, "text: 'Exit' alone leaves the conversation"),
    ],
)
def test_what_does_not_fit_is_told_before_a_model_is_asked(
    options: dict[str, Any], error: type[Exception], told: str, store: str
) -> None:
    ask(CHEF, "Soup?", session="s", model=model_of("Yes."), store=store)
    given: dict[str, Any] = {"text": "?", "model": model_of(), "store": store} | options
    with pytest.raises(error, match=told):
        ask(CHEF.replace(system_prompt="You sing."), **given)


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        ("Chef", "must be a Speaker or a dict with a speaker's fields, not str$"),
        (RunnableLambda(str), "not RunnableLambda; add it to the replies of a Speaker$"),
    ],
)
def test_who_is_no_speaker_is_neither_asked_nor_remembers(agent: Any, told: str) -> None:  # noqa: ANN401
    with pytest.raises(SpecError, match=f"agent: .*{told}"):
        ask(agent, "Soup?")
    with pytest.raises(SpecError, match=f"speaker: .*{told}"):
        remember(agent)


@pytest.mark.parametrize(
    ("results", "options", "error", "told"),
    [
        ((), {"word": 5}, TypeError, "there is no option 'word'; did you mean 'words'"),
        ((), {"nam": "Cook"}, TypeError, "there is no option 'nam'; did you mean 'name'"),
        ((), {"words": "5"}, SpecError, "words: must be a whole number, 1 or more, not '5'"),
        (([],), {}, TypeError, "results.0: must be a Result, not list"),
    ],
)
def test_what_nothing_can_be_remembered_by_is_told(
    results: Sequence[Any], options: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        remember(CHEF, *results, **options)


# A speaker in several conversations: its memory, or a summary of it, goes along

MASTER = Speaker(name="Master", system_prompt="You lead a game.")


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
    assert (outcome_of(result).rounds, outcome_of(result).messages) == (1, 4)


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
    assert "User: Choose a word.\n\nMaster: Quince." in model.calls[1].messages[1].text
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
    load_session(result.session.dump(), into="copy", store=store)
    assert seen(Session("copy", store=store).state(), "Master") == view
    assert "Quince" not in result.session.export(format="markdown")
    with pytest.raises(SpecError, match=r"Master\.memory: can't be changed in a fork"):
        result.session.fork(speakers={"Master": {"memory": []}})
    forked = result.session.fork(end_chat={"max_iterations": 3}).id
    more = model_of("Warm.", "9?")
    assert seen(Session(forked, store=store).resume(model=more), "Master")[: len(view)] == view
    assert texts(more.calls[0])[:2] == view[:2]
    result.session.reset(speaker="Master")
    assert "a:Quince." not in seen(result.session.state(), "Master")


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
    result = converse(spec, model=model_of("One.", "Two."), store=store)
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
