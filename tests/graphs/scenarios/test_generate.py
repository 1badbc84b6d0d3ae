"""Scenarios that a model writes from an agent's tools and its policy."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent

from duologue import Scenario, SpecError, simulate
from duologue.graphs.scenarios import generate_scenarios, load_suite, run_suite
from duologue.nodes.testing import Line, Prompt, Reply, ScriptedChatModel, ScriptedToolCall
from support.tables import check_rows, read_rows

POLICY = "Refund only charges of the customer's own orders. Never refund more than 100 euros."


def refund(number: int, amount: float = 0.0, reason: str = "") -> str:
    """Refund a charge of an order."""
    return f"Refunded {number}."


def look_up(number: int) -> str:
    """Look an order up."""
    return f"Order {number}."


def shop(*replies: Line) -> Any:  # noqa: ANN401  # a compiled graph
    return create_agent(ScriptedChatModel([*replies, "Done."]), [refund, look_up])


class Writer:
    """A model that writes scenarios, and repeats each goal once."""

    def __init__(self) -> None:
        self.tasks: list[str] = []

    def __call__(self, prompt: Prompt) -> Line:
        task = prompt[-1]["content"]
        self.tasks.append(task)
        number = 1040 + task.count("- You want")
        if "Write another goal than" not in task and number > 1040:
            number -= 1
        is_forbidden = "policy forbids" in task
        draft = {
            "name": "Refund of an order!",
            "goal": f"You want {'500 euros' if is_forbidden else 'one charge'} of order {number} "
            f"back, {'abcdefghij'[number - 1040] * 60}.",
            "knows": f"You are Ann Lee, and the order is {number}.",
            "criteria": ["The agent looks the order up.", "The agent looks the order up."],
            "tool": "refund",
            "arguments": [
                {"name": "number", "value": str(number)},
                {"name": "reason", "value": "never said"},
                {"name": "order", "value": str(number)},
                {"name": "amount", "value": "Ann Lee"},
            ],
        }
        return json.dumps(draft)


def test_scenarios_are_written_from_the_tools_and_the_policy() -> None:
    writer = Writer()
    text = generate_scenarios(shop(), POLICY, 4, model=ScriptedChatModel(writer))
    assert POLICY in writer.tasks[0]
    assert "- refund(number: integer, amount: number, reason: string): Refund a" in writer.tasks[0]
    found = tomllib.loads(text)["scenarios"]
    assert list(found) == [
        *("refund_of_an_order", "refund_of_an_order_2"),
        *("refund_of_an_order_3", "refund_of_an_order_4"),
    ]
    assert len({one["goal"] for one in found.values()}) == 4, "no scenario is written twice"
    assert len(writer.tasks) == 7, "each repeated goal is asked for again"
    forbidden = [one for one in found.values() if "expected_ends" in one]
    assert len(forbidden) == 2
    first, second, *_ = found.values()
    assert first["checks"] == [{"not_called": "refund", "arguments": {"number": 1040}}]
    assert first["expected_ends"] == ["gave_up", "handed_over"]
    # The values that the user can't say, and arguments that the tool does not have, are left out.
    assert second["checks"] == [{"called": "refund", "arguments": {"number": 1041}}]
    assert second["criteria"] == ["The agent looks the order up."]
    suite = load_suite(tomllib.loads(text))
    assert [check.__name__ for one in suite.scenarios.values() for check in one.checks][:2] == [
        'not called refund with {"number":1040}',
        'called refund with {"number":1041}',
    ]


def test_a_third_is_forbidden_for_any_count_and_an_agent_without_tools_has_no_checks() -> None:
    for count in range(1, 5):
        text = generate_scenarios(
            lambda messages: "No.", POLICY, count, model=ScriptedChatModel(Writer())
        )
        found = tomllib.loads(text)["scenarios"].values()
        assert len(found) == count
        assert 3 * sum("expected_ends" in one for one in found) >= count
        assert not [one for one in found if "checks" in one]


def test_a_model_that_repeats_itself_or_writes_no_json_is_one_error() -> None:
    same = ScriptedChatModel(lambda prompt: Writer()(prompt[:0] or [{"content": "", "role": ""}]))
    text = generate_scenarios(shop(), POLICY, 3, model=same)
    assert text.startswith("# 1 of 3 scenarios, because generate: 4 answers of the model in a row")
    assert len(tomllib.loads(text)["scenarios"]) == 1, "it keeps those that the model has written"
    with pytest.raises(SpecError, match=r"^generate: 4 answers of the model in a row"):
        generate_scenarios(shop(), POLICY, 3, model=ScriptedChatModel(lambda _: "I can't."))
    unused = ScriptedChatModel(Writer())
    with pytest.raises(SpecError, match=r"^policy: must not be empty"):
        generate_scenarios(shop(), " ", 3, model=unused)
    with pytest.raises(SpecError, match=r"^count: must be 1 or more, not 0"):
        generate_scenarios(shop(), POLICY, 0, model=unused)
    assert not unused.calls


CALLED = Reply(tool_calls=[ScriptedToolCall(name="refund", args={"number": 7}, id="1")])


@pytest.mark.parametrize(
    ("check", "reason"),
    [
        ({"called": "refund", "arguments": {"number": 7}}, ""),
        ({"called": "refund"}, ""),
        ({"not_called": "look_up"}, ""),
        ({"not_called": "refund", "arguments": {"number": 8}}, ""),
        ({"called": "refund", "arguments": {"number": 8}}, 'the agent called refund with {"number'),
        ({"not_called": "refund"}, 'the agent called refund with {"number":7}'),
    ],
)
def test_a_check_of_a_file_looks_for_tool_calls(
    check: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    suite = load_suite({"scenarios": {"a": {"goal": "Get order 7 refunded.", "checks": [check]}}})
    (scenario,) = suite.scenarios.values()
    user = ["Refund order 7.", "###STOP###"]
    result = simulate(scenario, shop(CALLED), model=ScriptedChatModel(user), store="memory:")
    assert result.passed == (not reason), result.report()
    assert result.verdicts[0].reason.startswith(reason)
    url = f"memory:{tmp_path.name}"
    report = run_suite(suite, shop(CALLED), name="shop", model=ScriptedChatModel(user), store=url)
    assert report.verdict == ("failed" if reason else "passed")


@pytest.mark.parametrize("value", ["NaN", "null", "[7]", "7.5", "true"])
def test_a_value_of_another_type_is_no_argument_of_a_check(value: str) -> None:
    draft = {
        "name": "a",
        "goal": f"You want a refund of order {value}.",
        "knows": "-",
        "criteria": ["It is polite."],
        "tool": "refund",
        "arguments": [{"name": "number", "value": value}],
    }
    # A blank text does not fit the form, so the model is asked again.
    model = ScriptedChatModel([json.dumps(draft | {"knows": " "}), json.dumps(draft)])
    text = generate_scenarios(shop(), POLICY, 1, model=model)
    assert tomllib.loads(text)["scenarios"]["a"]["checks"] == [{"not_called": "refund"}]


def test_a_wrong_check_of_a_file_is_one_error() -> None:
    def check(given: dict[str, Any], words: str) -> None:
        with pytest.raises(SpecError) as caught:
            load_suite({"scenarios": {"a": {"goal": "x", "checks": [given]}}})
        assert str(caught.value).startswith(f"scenarios.a.checks.0{words}")

    check_rows(read_rows(__file__, "tool_checks"), check)


@pytest.mark.exhaustive
def test_the_embedded_model_writes_a_scenario_in_the_form_or_the_error_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    try:
        written = generate_scenarios(shop(), POLICY, 1)
    except SpecError as error:
        # So small a model may leave each field blank.
        assert "did not fit the form; ask for fewer, or choose a larger model" in str(error)  # noqa: PT017
        return
    (fields,) = tomllib.loads(written)["scenarios"].values()
    assert fields["expected_ends"] == ["gave_up", "handed_over"]
    assert Scenario(**{name: one for name, one in fields.items() if name != "checks"}).criteria
