"""Which messages say a done token: as models write their last message, and as they mention it."""

# ruff: noqa: RUF001

import pytest
from hypothesis import given, strategies as st

from corpus.reading import rows
from duologue.graphs import DoneToken
from duologue.graphs.text.done_words import default_match, ends_with, says, without

STOP = "###STOP###"

LAST = [(text, heard[0] if heard else None) for text, *heard in rows("done_tokens", "ends")]
NOT_LAST = rows("done_tokens", "goes_on")


@pytest.mark.parametrize(("text", "heard"), LAST)
def test_r1_a_token_that_ends_a_message_as_a_sentence_of_its_own_is_said(
    text: str, heard: str | None
) -> None:
    assert says(STOP, text, "last")
    assert STOP not in without(STOP, text, "last")
    if heard is not None:
        assert without(STOP, text, "last").strip() == heard


@pytest.mark.parametrize("text", NOT_LAST)
def test_r1_a_token_that_is_mentioned_is_not_said_and_stays(text: str) -> None:
    assert not says(STOP, text, "last")
    assert not says(STOP, text, "alone")
    assert without(STOP, text, "last") == text


ENDINGS = st.sampled_from([*".!?", "?!", '."', "!)", "。", "！", "؟", "।", "。」"])
PROSE = st.text(st.characters(categories=["L", "Nd", "Zs"]), min_size=1)


@given(PROSE, ENDINGS, st.sampled_from(["", " ", "\n", "\n\n"]))
def test_r1_what_147_real_endings_look_like_is_said(text: str, end: str, gap: str) -> None:
    """The token is the message, begins a line, or stands behind a sentence's end; nothing after."""
    assert says(STOP, f"Well, {text}x{end}{gap}{STOP}", "last")
    assert says(STOP, f"{text}\n{STOP}", "last")
    assert says(STOP, STOP, "last")


@given(PROSE, st.sampled_from(["", " "]), st.sampled_from(["", "\n", "."]))
def test_r1_a_word_right_in_front_makes_it_a_mention(text: str, gap: str, end: str) -> None:
    assert not says(STOP, f"Well. {text} word{gap}{STOP}{end}", "last")


@given(st.text(), st.sampled_from(["alone", "last", "anywhere"]), st.text(min_size=1))
def test_r1_what_is_said_is_left_out_and_nothing_else(text: str, match: str, token: str) -> None:
    rule = DoneToken.model_validate({"token": STOP, "match": match}).counts
    shown = without(STOP, f"{text} {STOP}", rule)
    assert (STOP in shown) != says(STOP, f"{text} {STOP}", rule) or STOP in text
    assert says(token, text, "alone") <= says(token, text, "last")
    if not says(token, text, rule):
        assert without(token, text, rule) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("I say DONE now.", True),
        ("DONE!", True),
        ("(DONE)", True),
        ("我说DONE了", True),
        ("UNDONE", False),
        ("DONE_IT", False),
        ("`DONE`", False),
        ('Never say "DONE".', False),
        ("```\nDONE\n```", False),
        ("<think>DONE</think>Hi.", False),
        ("done", False),
    ],
)
def test_r1_anywhere_is_any_word_outside_code_quotations_and_thoughts(
    text: str, said: bool
) -> None:
    assert says("DONE", text, "anywhere") is said


@pytest.mark.parametrize(
    ("token", "text", "said"),
    [
        ("TASK_DONE", "All is well. TASK_DONE", True),
        ("TASK_DONE", "See config.TASK_DONE", False),
        ("TASK_DONE", "if !TASK_DONE", False),
        ("<CAMEL_TASK_DONE>", "Thank you. <CAMEL_TASK_DONE>", True),
        ("*done*", "Fine. *done*", True),
        ("*done*", "Fine *done*", False),
        (">>END<<", "Fine.\n>>END<<", True),
        ("`END`", "Fine. `END`", True),
        ("[完]", "好了。[完]", True),
    ],
)
def test_r1_tokens_of_any_make_are_found_last(token: str, text: str, said: bool) -> None:
    assert says(token, text, "last") is said


@pytest.mark.parametrize(
    ("token", "match"),
    [
        ("DONE", "alone"),
        ("SATISFIED", "alone"),
        ("好了", "alone"),
        ("समाप्त", "alone"),
        ("Ende2", "alone"),
        ("###STOP###", "last"),
        ("<CAMEL_TASK_DONE>", "last"),
        ("TASK_DONE", "last"),
        ("DONE!", "last"),
    ],
)
def test_r1_a_token_that_is_no_ordinary_word_counts_last(token: str, match: str) -> None:
    assert default_match(token) == match
    assert DoneToken(token=token).counts == match
    assert DoneToken(token=token, match="anywhere").counts == "anywhere"


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("TERMINATE", True),
        ("It works, so TERMINATE", True),
        ("It works. TERMINATE.", True),
        ("**TERMINATE**", True),
        ("`TERMINATE`", True),
        ('"TERMINATE"', True),
        ("```python\nprint(1)\n```\nTERMINATE", True),
        ("<think>It works.</think>TERMINATE", True),
        ("TERMINATE when you are done", False),
        ("I say `TERMINATE now. TERMINATE`", False),
        ('Reply "thanks, TERMINATE"', False),
        ("Reply “thanks, TERMINATE”.", False),
        ("```\nTERMINATE\n```", False),
        ("> TERMINATE", False),
        ("<think>I could say TERMINATE</think>", False),
        ("<think>I could say TERMINATE", False),
        ("EXTERMINATE", False),
        ("terminate", False),
    ],
)
def test_a6_a_termination_word_ends_a_message_but_for_code_quotations_and_thoughts(
    text: str, ends: bool
) -> None:
    assert ends_with("TERMINATE", text) is ends


@pytest.mark.parametrize("piece", ["a", "`", '"', "> ", "<think>", "```\n", "a\n", "'", "“"])
def test_a_huge_text_is_read_in_linear_time(piece: str) -> None:
    huge = piece * (50_000 // len(piece))
    for match in ("alone", "last", "anywhere"):
        rule = DoneToken.model_validate({"token": "a", "match": match}).counts
        says("a", f"{huge}a", rule)
        says(piece.strip(), huge, rule)
    ends_with("a", f"{huge}a")
