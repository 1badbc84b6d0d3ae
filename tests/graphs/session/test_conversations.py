"""Whole conversations through the compiled graph: views of the speakers, reasons of the end."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import SecretStr

from duologue import Conversation, EndChatMode, Outcome, Reason, build_graph, role_play
from duologue.graphs.conversation.judges import Verdict
from duologue.graphs.kinds.role_play import BEGIN_INSTRUCTING, DONE_TOKEN
from duologue.graphs.log.state import Input, State
from duologue.graphs.log.viewpoint import SILENCE, viewpoint
from duologue.graphs.prompts import prompts
from duologue.graphs.rules.position import max_steps
from duologue.nodes.testing import Line, Reply, ScriptedChatModel, ScriptedToolCall
from duologue.nodes.testing.server import ScriptedServer
from support.fork_help import with_verdicts
from support.log import fields_of, kind_of, log_of, of_kind, place_of
from support.tables import read_rows

MODES = list(EndChatMode)
YES: dict[str, Any] = {"objectives_left": [], "complete": True}
NO: dict[str, Any] = {"objectives_left": ["price", "place"], "complete": False}


class Ran:
    """A conversation that has run to its end."""

    def __init__(self, conversation: Conversation, state: Mapping[str, Any]) -> None:
        self.conversation = conversation
        self.log: list[BaseMessage] = [*log_of(state)]
        self.outcome = Outcome.model_validate(state["outcome"])
        self.task: str = state["specified_task"]

    @property
    def said(self) -> list[str]:
        """Return the messages, each with its speaker."""
        return [
            f"{fields_of(message).speaker}: {message.text}"
            for message in of_kind(self.log, "speech")
        ]

    def seen(self, name: str) -> list[str]:
        """Return a speaker's own history as roles and texts."""
        roles = {"human": "u", "ai": "a", "tool": "t"}
        view = viewpoint(self.conversation, self.log, name)
        return [f"{roles[message.type]}:{message.text}" for message in view]

    def kinds(self, kind: str) -> list[BaseMessage]:
        return [message for message in self.log if kind_of(message) == kind]

    @property
    def verdicts(self) -> list[Verdict]:
        found = (fields_of(message).verdict for message in self.log)
        return [verdict for verdict in found if verdict is not None]


async def run(
    conversation: Conversation, model: BaseChatModel, tools: Sequence[BaseTool] = ()
) -> Ran:
    graph = build_graph(checkpointer=InMemorySaver(), model=model, tools=tools)
    given = Input(conversation=conversation.model_dump(mode="json"))
    config = RunnableConfig(
        configurable={"thread_id": "t"}, recursion_limit=max_steps(conversation)
    )
    whole = [*State.__annotations__]
    state = await graph.ainvoke(given, config, durability="sync", output_keys=whole)
    return Ran(conversation, state)


async def scripted(conversation: Conversation, script: Sequence[Line]) -> Ran:
    """Run a conversation on a script that must be used up."""
    model = ScriptedChatModel(script=script)
    ran = await run(conversation, model)
    assert len(model.calls) == len(script)
    return ran


async def served(conversation: Conversation, server: ScriptedServer) -> Ran:
    """Run a conversation with the real client."""
    chat = ChatOpenAI(
        base_url=server.url, api_key=SecretStr("any"), model="scripted", max_retries=0
    )
    return await run(conversation, chat)


def dual(count: int = 2, stoppers: str = "", **fields: Any) -> Conversation:
    """Return a conversation of speakers A, B, …, with tasks P1, P2, …."""
    keep = fields.pop("keep", "")
    return Conversation.model_validate(
        {
            "speakers": [
                {
                    "name": name,
                    "task": f"P{number}",
                    "checks_completion": name in stoppers,
                    "keep_self_reflection": name in keep,
                }
                for number, name in enumerate("ABCD"[:count], start=1)
            ],
            **fields,
        }
    )


def capped(cap: int, mode: EndChatMode = MODES[0]) -> dict[str, Any]:
    return {"mode": mode, "max_iterations": cap}


# Opening and rounds. The others' views contain the last message even if it has no answer.


async def test_after_opening_answers_the_shift_begins_the_rounds() -> None:
    """Y3 to Y7: cap 1 allows two messages each, because opening answers do not count."""
    for row in read_rows(__file__, "shifts"):
        opening = {"answers": True, **row["opening"]}
        ran = await scripted(dual(opening=opening, end_chat=capped(1)), row["script"])
        assert (ran.seen("A"), ran.seen("B")) == (row["seen_by_a"], row["seen_by_b"])
        assert ran.outcome.reasons == (Reason.MAX_ITERATIONS,)
        assert (ran.outcome.rounds, ran.outcome.messages) == (1, 4)


async def test_opening_answers_are_given_blindly_and_alone() -> None:
    """Y4: B answers P2 without P1 and A1 in its prompt."""
    conversation = dual(opening={"answers": True}, end_chat=capped(1))
    model = ScriptedChatModel(script=["A1", "B1", "B2", "A2"])
    await run(conversation, model)
    asked = [[message["content"] for message in call.prompt[1:]] for call in model.calls]
    assert asked == [["P1"], ["P2"], ["P2", "B1", "A1"], ["P1", "A1", "B2"]]
    roles = [[message["role"] for message in call.prompt] for call in model.calls]
    assert roles[2] == ["system", "user", "assistant", "user"]


@pytest.mark.parametrize("cap", [1, 2, 3])
async def test_in_one_round_every_speaker_speaks_once(cap: int) -> None:
    """Y3, Y11, Y20: three speakers also take turns, and no judge is asked."""
    names = ["A", "B", "C"] * cap
    script = [f"{name} says {number}" for number, name in enumerate(names)]
    ran = await scripted(dual(3, "ABC", task="P", end_chat=capped(cap)), script)
    assert ran.said == [f"{name}: {text}" for name, text in zip(names, script, strict=True)]
    assert ran.outcome.reasons == (Reason.MAX_ITERATIONS,)
    assert (ran.outcome.rounds, ran.outcome.by) == (cap, None)
    assert ran.outcome.message == place_of(ran.log[-1])
    assert ran.verdicts == []


async def test_a_done_token_in_an_opening_answer_ends_nothing() -> None:
    """Z4, Y9: no speaker hears opening answers."""
    conversation = dual(
        opening={"answers": True},
        end_chat={"max_iterations": 1, "when": {"kind": "done_token", "token": "DONE"}},
    )
    ran = await scripted(conversation, ["DONE", "B1", "B2", "A2"])
    assert ran.outcome.reasons == (Reason.MAX_ITERATIONS,)


# Ends by completed tasks.


async def test_completed_tasks_end_it_as_the_mode_says() -> None:
    """Y12 to Y15: the stoppers are asked after their turns."""
    for row in read_rows(__file__, "completions"):
        count, said = row["count"], [one for one in row["script"] if one not in ("YES", "NO")]
        end_chat = capped(row["cap"], EndChatMode(row["mode"]))
        talk = dual(count, row["stoppers"], task="P", end_chat=end_chat)
        ran = await scripted(talk, with_verdicts(row["script"]))
        speeches = of_kind(ran.log, "speech")
        assert [message.text for message in speeches] == said, row
        assert [fields_of(one).speaker for one in speeches] == [one[0].upper() for one in said]
        assert ran.outcome.reasons == tuple(map(Reason, row["reasons"])), row
        assert ran.outcome.message == place_of(speeches[-1])
        assert ran.outcome.messages == len(said)
        # R11: last words belong to a round.
        assert ran.outcome.rounds == len(said) // count
        completed = [verdict.speaker for verdict in ran.verdicts if verdict.complete]
        assert list(ran.outcome.completed) == completed
        is_completed = row["reasons"][0] == "completed"
        assert ran.outcome.by == (completed[-1] if is_completed else None), row


@pytest.mark.parametrize(
    ("count", "answers", "script"),
    [
        (3, False, ["a1", YES, "b1", "c1", "a2"]),
        (2, True, ["A1", "B1", "b2", YES, "a2"]),
    ],
)
async def test_r11_last_words_belong_to_a_round(
    count: int, answers: bool, script: list[Line]
) -> None:
    end_chat = capped(3, MODES[2] if answers else MODES[3])
    stoppers = "B" if answers else "A"
    ran = await scripted(
        dual(count, stoppers, task="P", opening={"answers": answers}, end_chat=end_chat), script
    )
    assert ran.outcome.reasons == (Reason.COMPLETED,)
    assert str(ran.outcome).startswith("Ended after 1 round and 4 messages: ")


async def test_a_stopper_is_not_asked_after_its_opening_answer() -> None:
    """Y9: a stopper is asked only after its turns in the rounds."""
    conversation = dual(2, "AB", opening={"answers": True}, end_chat=capped(1, MODES[1]))
    ran = await scripted(conversation, ["A1", "B1", "B2", NO, "A2", NO])
    assert [verdict.speaker for verdict in ran.verdicts] == ["B", "A"]


# The judge's questions.


async def test_a_structured_verdict_takes_one_call_at_its_own_temperature() -> None:
    """Y9, Z1: speakers use 0.2, the verdict 0.3."""
    conversation = dual(2, "B", task="P", end_chat=capped(1, MODES[1]))
    with ScriptedServer(["a1", "b1", YES]) as server:
        ran = await served(conversation, server)
    assert [call.body["temperature"] for call in server.calls] == [0.2, 0.2, 0.3]
    assert [("response_format" in call.body) for call in server.calls] == [False, False, True]
    asked = [(m["role"], m["content"]) for m in server.calls[2].prompt[1:]]
    assert asked == [("user", "a1"), ("assistant", "b1"), ("user", prompts.JUDGE_OWN_TASK)]
    assert ran.verdicts == [Verdict(speaker="B", complete=True)]
    assert ran.outcome.total.calls == 3


async def test_the_two_questions_take_two_calls_at_two_temperatures() -> None:
    """Y9: the list of open objectives uses the speaker's temperature, the yes or no 0.3."""
    conversation = dual(
        2, "B", task="P", end_chat=capped(1, MODES[1]), judge={"form": "two_questions"}
    )
    with ScriptedServer(["a1", "b1", "The price.", "No."]) as server:
        ran = await served(conversation, server)
    assert [call.body["temperature"] for call in server.calls] == [0.2, 0.2, 0.2, 0.3]
    assert not any("response_format" in call.body for call in server.calls)
    last = [(m["role"], m["content"]) for m in server.calls[3].prompt[1:]]
    assert last == [
        ("user", "a1"),
        ("assistant", "b1"),
        ("user", prompts.LIST_OBJECTIVES_LEFT),
        ("assistant", "The price."),
        ("user", prompts.IS_TASK_COMPLETE),
    ]
    assert ran.verdicts == [Verdict(speaker="B", complete=False, objectives_left=("The price.",))]
    assert ran.outcome.reasons == (Reason.MAX_ITERATIONS,)


async def test_a_word_that_is_neither_yes_nor_no_is_not_complete_and_unreadable() -> None:
    """Y9: the judge is asked once more, and its answer is in the log."""
    conversation = dual(
        2, "B", task="P", end_chat=capped(1, MODES[1]), judge={"form": "two_questions"}
    )
    for answer in read_rows(__file__, "judges")["neither_yes_nor_no"]:
        ran = await scripted(conversation, ["a1", "b1", "The price.", answer, answer])
        assert [(v.complete, v.readable) for v in ran.verdicts] == [(False, False)], answer
        assert ran.outcome.reasons == (Reason.MAX_ITERATIONS,)
        assert ran.log[-1].text == answer


async def run_either_way(conversation: Conversation, script: list[Line], *, http: bool) -> Ran:
    """Run a conversation with a scripted model, or with the real client of a scripted server."""
    if not http:
        return await scripted(conversation, script)
    with ScriptedServer(script) as server:
        return await served(conversation, server)


@pytest.mark.parametrize("http", [False, True], ids=["model", "http"])
async def test_an_answer_that_does_not_fit_the_schema_is_not_complete_and_recorded(
    http: bool,
) -> None:
    """Y9, R4: an answer that lacks a field, contradicts itself or is cut off is unreadable."""
    conversation = dual(2, "B", task="P", keep="B", end_chat=capped(1, MODES[1]))
    for answer in read_rows(__file__, "judges")["unreadable"]:
        ran = await run_either_way(conversation, ["a1", "b1", answer, answer], http=http)
        assert ran.verdicts == [Verdict(speaker="B", complete=False, readable=False)], answer
        assert ran.outcome.reasons == (Reason.MAX_ITERATIONS,)
        assert ran.kinds("reflection")[0].text == answer
        assert ran.seen("B") == ["u:a1", "a:b1"]


@pytest.mark.parametrize("http", [False, True], ids=["model", "http"])
async def test_r4_a_verdict_is_read_as_models_write_it(http: bool) -> None:
    conversation = dual(2, "B", task="P", end_chat=capped(1, MODES[1]))
    for answer in read_rows(__file__, "judges")["complete"]:
        ran = await run_either_way(conversation, ["a1", "b1", answer], http=http)
        assert ran.verdicts == [Verdict(speaker="B", complete=True)], answer
        assert ran.outcome.reasons[0] is Reason.COMPLETED


@pytest.mark.parametrize(
    ("form", "answers", "kept"),
    [
        pytest.param(
            "structured",
            [NO],
            [f"u:{prompts.JUDGE_OWN_TASK}", "a:Still to do: price; place."],
            id="Y10-structured-some-left",
        ),
        pytest.param(
            "structured",
            [{"objectives_left": [], "complete": False}],
            [f"u:{prompts.JUDGE_OWN_TASK}", "a:The task is not complete yet."],
            id="Y10-structured-none-left",
        ),
        pytest.param(
            "two_questions",
            ["The price.", "no"],
            [f"u:{prompts.LIST_OBJECTIVES_LEFT}", "a:The price."],
            id="Y10-two-questions",
        ),
    ],
)
async def test_a_reflection_is_kept_in_its_speakers_view_or_vanishes(
    form: str, answers: list[Line], kept: list[str]
) -> None:
    for keep in ("", "A"):
        conversation = dual(
            2, "A", task="P", keep=keep, end_chat=capped(2, MODES[1]), judge={"form": form}
        )
        script: list[Line] = ["a1", *answers, "b1", "a2", *answers, "b2"]
        ran = await scripted(conversation, script)
        begun = f"u:{prompts.BEGIN}"
        if keep:
            # The next heard message follows the kept answer as usual.
            mine = [begun, "a:a1", *kept, "u:b1", "a:a2", *kept, "u:b2"]
        else:
            mine = [begun, "a:a1", "u:b1", "a:a2", "u:b2"]
        assert ran.seen("A") == mine
        assert ran.seen("B") == ["u:a1", "a:b1", "u:a2", "a:b2"]


# Role-play.

USER, HELPER = "Trader", "Coder"
STEP = "Instruction: do {}\nInput: None"
DID = "Solution: did {}.\nNext request."
DONE = DONE_TOKEN
AT_ONCE = {"allow_unanswered_end": True}


def play(**options: Any) -> Conversation:
    return role_play("Build a bot", USER, HELPER, **{"specify_task": False, **options})


async def test_a_role_play_goes_to_the_done_token_and_the_assistant_never_answers_it() -> None:
    """Z3, Z4, Z5: a role-play runs to the done token, which the assistant never answers."""
    script = [STEP.format(1), DID.format(1), STEP.format(2), DID.format(2), DONE]
    ran = await scripted(play(), script)
    assert [message.text for message in ran.log[1:]] == script
    assert ran.outcome.reasons == (Reason.DONE_TOKEN,)
    assert (ran.outcome.by, ran.outcome.rounds, ran.outcome.messages) == (USER, 2, 5)
    assert ran.outcome.message == place_of(ran.log[-1])
    assert ran.seen(USER)[:2] == [f"u:{BEGIN_INSTRUCTING}", f"a:{STEP.format(1)}"]
    assert ran.seen(HELPER)[0] == f"u:{STEP.format(1)}"


async def test_the_done_token_counts_alone_on_a_line_of_a_longer_message() -> None:
    """Z4: a mere mention of the token does not count."""
    mention = f"Instruction: do 2, or I say {DONE}\nInput: None"
    script = [STEP.format(1), DID.format(1), mention, DID.format(2), f"Thank you.\n{DONE}"]
    ran = await scripted(play(), script)
    assert ran.outcome.reasons == (Reason.DONE_TOKEN,)
    assert ran.kinds("draft") == []


async def test_a_done_token_on_the_first_turn_is_said_twice_or_not_at_all() -> None:
    """Z4, R19: after a done token in the first turn, the assistant is never called."""
    ran = await scripted(play(), [DONE, DONE])
    assert ran.said == [f"{USER}: {DONE}"]
    assert ran.outcome.reasons == (Reason.DONE_TOKEN,)
    ran = await scripted(play(max_iterations=1), [DONE, STEP.format(1), DID.format(1)])
    assert ran.said == [f"{USER}: {STEP.format(1)}", f"{HELPER}: {DID.format(1)}"]


@pytest.mark.parametrize(
    ("options", "sent"),
    [({}, [1.0, 0.2, 0.2]), ({"task_temperature": 0.7, "temperature": 0.0}, [0.7, 0.0, 0.0])],
)
async def test_the_two_temperatures_are_sent(options: dict[str, Any], sent: list[float]) -> None:
    """Z1: the temperature is 1.0 for the task and 0.2 for both agents; both can be set."""
    with ScriptedServer(["A tea bot", STEP.format(1), DID.format(1)]) as server:
        await served(play(specify_task=True, max_iterations=1, **options), server)
    assert [call.body["temperature"] for call in server.calls] == sent


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        pytest.param("Let us do 1.", "must begin with 'Instruction:'", id="Z3-no-marks"),
        pytest.param("Instruction: a\nInstruction: b", "only once", id="R8-two-instructions"),
        pytest.param(
            DID.format(1), f"You are {USER}, but your message speaks for {HELPER}.", id="Z3-flip"
        ),
        pytest.param(" \n", "Your message was empty.", id="Z3-blank"),
    ],
)
async def test_a_broken_reply_is_asked_for_once_more_with_the_reason(
    broken: str, reason: str
) -> None:
    model = ScriptedChatModel(script=[broken, STEP.format(1), DID.format(1)])
    ran = await run(play(max_iterations=1), model)
    assert ran.said == [f"{USER}: {STEP.format(1)}", f"{HELPER}: {DID.format(1)}"]
    first, again, then = (call.prompt for call in model.calls)
    assert reason in again[-1]["content"]
    assert again[-1]["role"] == "user"
    shown = [(m["role"], m["content"]) for m in again[: len(first)]]
    if broken.strip():
        assert again[: len(first)] == first
        assert (again[-2]["role"], again[-2]["content"]) == ("assistant", broken)
    else:
        assert [role for role, _ in shown] == ["system", "user"]
        assert first[-1]["content"] in again[-1]["content"]
    # No speaker hears the draft or the reason, neither the other nor its author later.
    assert [m["content"] for m in then[1:]] == [STEP.format(1)]
    drafts = ran.kinds("draft")
    assert [message.text for message in drafts] == [broken]
    assert reason in (fields_of(drafts[0]).problem or "")
    assert reason not in str(ran.seen(USER))
    assert ran.outcome.total.calls == 3


async def test_a_reply_that_is_still_broken_is_taken_as_it_is_and_marked() -> None:
    """Z3: a second broken reply is kept and marked."""
    twice = "Instruction: {0}\nInstruction: {0}\nInput: None"
    script = [twice.format("one"), twice.format("two"), DID.format(1)]
    ran = await scripted(play(max_iterations=1), script)
    assert ran.said[0] == f"{USER}: {twice.format('two')}"
    assert "'Instruction:'" in (fields_of(ran.kinds("speech")[0]).problem or "")
    assert ran.outcome.reasons == (Reason.MAX_ITERATIONS,)


async def test_r15_a_reply_whose_first_mark_is_still_missing_is_given_it() -> None:
    ran = await scripted(play(max_iterations=1), ["one", "two", DID.format(1)])
    assert ran.said[0] == f"{USER}: Instruction: two\nInput: None"
    assert fields_of(ran.kinds("speech")[0]).problem is None


async def test_roles_that_stay_flipped_end_it_and_say_who_flipped() -> None:
    """Z3: the first role flip is tolerated, the second ends the conversation."""
    flip = [STEP.format(7), STEP.format(8)]
    script = [STEP.format(1), *flip, STEP.format(2), *flip]
    ran = await scripted(play(), script)
    assert ran.outcome.reasons == (Reason.ROLE_FLIPS,)
    assert (ran.outcome.by, ran.outcome.rounds) == (HELPER, 2)
    assert ran.said[-1] == f"{HELPER}: {STEP.format(8)}"


async def test_the_task_is_rewritten_before_anyone_speaks() -> None:
    """Z2: both speakers get the new task; it is in the log, but no speaker hears the request."""
    model = ScriptedChatModel(script=['"Build a bot that trades tea."', DONE])
    ran = await run(play(specify_task=True, end_chat=AT_ONCE), model)
    assert ran.task == "Build a bot that trades tea."
    assert "Build a bot that trades tea." in model.calls[1].prompt[0]["content"]
    request = model.calls[0].prompt
    assert [message["role"] for message in request] == ["user"]
    assert "Build a bot" in request[0]["content"]
    assert "50 words" in request[0]["content"]
    assert [fields_of(message).audience for message in ran.kinds("specified_task")] == [()]
    # R1: other speakers hear a message without its done token.
    assert ran.seen(HELPER) == ["u:(empty message)"]


async def test_a_rewrite_over_the_limit_is_asked_for_once_more() -> None:
    """Z2: an overlong rewrite is requested once more, with its number of words."""
    model = ScriptedChatModel(script=["one two three four", "five six", DONE])
    ran = await run(play(specify_task=True, word_limit=3, end_chat=AT_ONCE), model)
    assert ran.task == "five six"
    again = [(message["role"], message["content"]) for message in model.calls[1].prompt]
    assert again[1] == ("assistant", "one two three four")
    assert again[2] == ("user", prompts.fill_template(prompts.SHORTEN_TASK, count=4, limit=3))
    assert len({message.id for message in ran.log}) == len(ran.log)


async def test_a_rewrite_that_stays_too_long_is_cut_at_a_sentence() -> None:
    """Z2: without a sentence that fits, it is cut between words."""
    long = "far too many words for any such limit"
    spec = play(specify_task=True, word_limit=5, end_chat=AT_ONCE)
    for rewrite, cut in read_rows(__file__, "rewrites").items():
        assert (await scripted(spec, [long, rewrite, DONE])).task == cut


async def test_a_blank_rewrite_leaves_the_task_as_given() -> None:
    ran = await scripted(play(specify_task=True, end_chat=AT_ONCE), [" ", DONE])
    assert ran.task == "Build a bot"


# Tools within a turn.


@tool
def price(item: str) -> str:
    """Return a price."""
    return f"{item}: 4"


def calling(key: str, args: dict[str, Any] | str) -> Reply:
    return Reply(tool_calls=(ScriptedToolCall(name="price", args=args, id=key),))


def buying() -> Conversation:
    return Conversation.model_validate(
        {
            "task": "Buy tea.",
            "speakers": [{"name": "A", "tools": ["price"]}, {"name": "B"}],
            "end_chat": {"max_iterations": 1},
        }
    )


def shown(model: ScriptedChatModel, number: int) -> list[str]:
    """Return the prompt of a call as roles and texts, without the system prompt."""
    return [f"{message['role']}:{message['content']}" for message in model.calls[number].prompt[1:]]


async def test_a_blank_reply_behind_a_tools_answer_leaves_the_answer_in_its_place() -> None:
    """Z3, Y18: no call reaches a provider without its result."""
    model = ScriptedChatModel(script=[calling("c1", {"item": "tea"}), "", "Four.", "Fine."])
    ran = await run(buying(), model, [price])
    assert shown(model, 2)[:3] == [f"user:{prompts.BEGIN}", "assistant:", "tool:tea: 4"]
    assert shown(model, 2)[3] == f"assistant:{SILENCE}"
    assert shown(model, 2)[4].startswith("user:Your message was empty.")
    assert len(shown(model, 2)) == 5
    assert ran.said == ["A: Four.", "B: Fine."]


async def test_arguments_that_are_no_json_come_back_to_be_mended() -> None:
    """Y19: the model receives an error for arguments that are no JSON."""
    script: list[Line] = [calling("c1", "{item"), calling("c2", {"item": "tea"}), "Four.", "Fine."]
    model = ScriptedChatModel(script=script)
    ran = await run(buying(), model, [price])
    called, result = model.calls[1].prompt[-2:]
    assert [call["id"] for call in called["tool_calls"]] == ["c1"]
    assert (result["tool_call_id"], result["role"]) == ("c1", "tool")
    assert "not valid JSON" in result["content"]
    assert shown(model, 2)[-1] == "tool:tea: 4"
    assert ran.seen("B") == ["u:Four.", "a:Fine."]


async def test_a_reply_is_asked_for_again_once_even_with_a_call_of_tools_between() -> None:
    """Z3: there is one correction request per turn, even with tool calls in between."""
    script: list[Line] = ["", calling("c1", {"item": "tea"}), "", "Fine."]
    model = ScriptedChatModel(script=script)
    ran = await run(buying(), model, [price])
    assert len(model.calls) == len(script)
    assert ran.said[1:] == ["B: Fine."]
