"""Done tokens in messages: endings as models write them, and mere mentions."""

# ruff: noqa: RUF001

import pytest
from hypothesis import given, settings, strategies as st

from corpus.reading import rows
from duologue.graphs import DoneToken
from duologue.graphs.text.done_words import Match, default_match, says, without
from support.cases import drawn_cases
from support.tables import each_row

STOP = "###STOP###"

RULES: list[tuple[str, Match, str, str]] = [
    (STOP, "last", "ends", "goes_on"),
    ("DEAL", "alone", "deals", "no_deals"),
]
"""A token, its match mode, the rows that say it, and those that only mention it."""


@pytest.mark.parametrize(("token", "match", "ends", "goes_on"), RULES)
def test_r1_a_token_that_is_said_is_left_out_and_one_that_is_mentioned_stays(
    token: str, match: Match, ends: str, goes_on: str
) -> None:
    """`test_corpus.py` checks which rows say the token."""
    for text, *heard in rows("done_tokens", ends):
        found = without(token, text, match, "User")
        assert token not in found, text
        assert not heard or found.strip() == heard[0]
    for text in rows("done_tokens", goes_on):
        assert without(token, text, match, "User") == text


@pytest.mark.parametrize(
    ("token", "text", "heard"),
    [
        ("DONE", "Voila\u0300 le cafe\u0301 DONE", "Voila\u0300 le cafe\u0301"),
        ("ARRÊT", "Fini. ARRE\u0302T", "Fini."),
        ("ARRE\u0302T", "Fini. ARRÊT", "Fini."),
        (STOP, "cafe\u0301###STOP###", "cafe\u0301###STOP###"),
        (STOP, "<code>a</code> ###STOP###", "<code>a</code>"),
        ("<STOP>", "Thanks! &lt;STOP&gt; Bye!", "Thanks! Bye!"),
        ("<STOP>", "Merci&lt;STOP&gt;", "Merci&lt;STOP&gt;"),
    ],
)
def test_r1_accents_and_tags_around_a_token_stay_whole(token: str, text: str, heard: str) -> None:
    assert without(token, text, "last") == heard


ENDINGS = st.sampled_from([*".!?", "?!", '."', "!)", "。", "！", "؟", "।", "。」"])
PROSE = st.text(st.characters(categories=["L", "Nd", "Zs"]), min_size=1)


@drawn_cases(30, 300, PROSE, ENDINGS, st.sampled_from(["", " ", "\n", "\n\n"]))
def test_r1_what_147_real_endings_look_like_is_said(text: str, end: str, gap: str) -> None:
    """R1: a token counts as the message, at the start of a line, or after a sentence."""
    assert says(STOP, f"Well, {text}x{end}{gap}{STOP}", "last")
    assert says(STOP, f"{text}x\n{STOP}", "last")
    assert says(STOP, STOP, "last")


SIGNS = st.sampled_from(["**", "*", "_", "`", '"', "'", "(", "[", "<", "“", "«", "「", "", ""])
ENDS = st.sampled_from([".", "!", "…", "。", " 👋", " :)", "\n", "", ""])
CONTROL = st.sampled_from(["</s>", "<|im_end|>", "", ""])
LABELS = st.sampled_from(["User: ", "user:", "**User:** ", "\nUser : ", "", ""])
CLOSED = {"(": ")", "[": "]", "<": ">", "“": "”", "«": "»", "「": "」"}


@st.composite
def decorated(draw: st.DrawFn, word: str) -> str:
    """Draw a word that has only decoration, its speaker's label and final punctuation around it."""
    for sign, end in draw(st.lists(st.tuples(SIGNS, ENDS), max_size=2)):
        inner = end if end in (".", "!", "…", "。") else ""
        word = f"{sign}{word}{inner}{CLOSED.get(sign, sign)}"
    return draw(LABELS) + word + "".join(draw(st.lists(ENDS, max_size=2))) + draw(CONTROL)


@settings(max_examples=60)
@given(
    st.sampled_from(["DEAL", "Deal", "###STOP###", "###stop###", "<DONE>", "[完]"]).flatmap(
        lambda word: st.tuples(st.just(word), decorated(word))
    ),
    st.sampled_from(["", "Thank you, bye.\n", "See you\n\n"]),
    st.sampled_from(["alone", "last", "anywhere"]),
)
def test_r1_any_decoration_of_a_last_line_counts_and_is_not_heard(
    said: tuple[str, str], before: str, match: Match
) -> None:
    token, text = said[0].upper(), before + said[1]
    assert says(token, text, match, "User")
    assert without(token, text, match, "User") == before.rstrip()


ABOUT = st.sampled_from(
    [
        *("Then I will say {}", "I reply with {}", "Please answer {}", "You write {}"),
        *("I will not {}", "I never say {}", "We must not {}", "It is not time to {}"),
        *("Should I {}?", "{}?", "Is it {}?", "Is this the end, or {}?", "Can I say {}?"),
        *("If it is done, {}", "Once we agree, I say {}", "Otherwise return {}"),
        *("The word is {}", "My last word: {}", "First we talk, then I say: {}"),
        *("Ich sage dann {}", "Je réponds {}", "Voy a decir {}", "Я скажу {}", "我会说{}"),
    ]
)


@settings(max_examples=60)
@given(
    ABOUT,
    st.sampled_from(["", "Hello. ", "That is all!\n", "We agree: "]),
    st.sampled_from(["{}", "'{}'", '"{}"', "`{}`", "**{}**", "({})"]),
    st.sampled_from(["", ".", "!", " 👋", "</s>"]),
)
def test_r1_any_sentence_about_the_token_does_not_count_and_is_heard(
    about: str, before: str, quoted: str, end: str
) -> None:
    text = before + about.format(quoted.format(STOP)) + end
    assert not says(STOP, text, "last", "User")
    assert without(STOP, text, "last", "User") == text


@settings(max_examples=60)
@given(
    st.sampled_from(["thanks", "All booked", "Danke dir", "Merci bien", "Спасибо", "谢谢"]),
    st.sampled_from([" ", ", ", "... ", " – ", "\n"]),
    st.sampled_from(["", ".", "!", " 👋"]),
)
def test_r1_a_bare_token_after_words_about_something_else_counts(
    words: str, gap: str, end: str
) -> None:
    assert says(STOP, f"{words}{gap}{STOP}{end}", "last")
    assert without(STOP, f"{words}{gap}{STOP}{end}", "last") == words + gap.strip(" ,–\n")
    assert not says(STOP, f"{words}{gap}{STOP}{end}?", "last")


@drawn_cases(
    30, 300, st.text(), st.sampled_from(["alone", "last", "anywhere"]), st.text(min_size=1)
)
def test_r1_what_is_said_is_left_out_and_nothing_else(text: str, match: str, token: str) -> None:
    rule = DoneToken.model_validate({"token": STOP, "match": match}).counts
    shown = without(STOP, f"{text} {STOP}", rule)
    assert (STOP in shown) != says(STOP, f"{text} {STOP}", rule) or STOP in text
    if not says(token, text, rule):
        assert without(token, text, rule) == text


@each_row("anywhere")
def test_r1_anywhere_is_any_word_outside_code_quotations_and_thoughts(
    text: str, said: bool
) -> None:
    assert says("DONE", text, "anywhere") is said


@each_row("last")
def test_r1_tokens_of_any_make_are_found_last(token: str, text: str, said: bool) -> None:
    assert says(token, text, "last") is said


@each_row("labels")
def test_r1_the_name_before_a_token_is_compared_in_any_case(
    name: str, text: str, said: bool
) -> None:
    assert says("Bitti", text, "alone", name) is said


@each_row("matches")
def test_r1_a_token_that_is_no_ordinary_word_counts_last(token: str, match: str) -> None:
    assert default_match(token) == match
    assert DoneToken(token=token).counts == match
    assert DoneToken(token=token, match="anywhere").counts == "anywhere"


@each_row("terminations")
def test_a6_a_termination_word_ends_a_message_but_for_code_quotations_and_thoughts(
    text: str, ends: bool
) -> None:
    assert says("TERMINATE", text, "last") is ends


@pytest.mark.part(2)
@pytest.mark.parametrize("piece", ["a", "`", '"', "> ", "<think>", "```\n", "a\n", "'", "“"])
def test_a_huge_text_is_read_in_linear_time(piece: str) -> None:
    huge = piece * (50_000 // len(piece))
    for match in ("alone", "last", "anywhere"):
        rule = DoneToken.model_validate({"token": "a", "match": match}).counts
        says("a", f"{huge}a", rule)
        says(piece.strip(), huge, rule)
    says("A", f"{huge}a", "last")
