"""R2: a model's thoughts inside its text are separated from its message, even in pieces."""

# ruff: noqa: RUF001

from itertools import pairwise

import pytest
from hypothesis import example, given, settings, strategies as st

from duologue.graphs.text.done_words import Match, settled, without
from duologue.graphs.text.thoughts import TOKENS as CONTROL_TOKENS, ThoughtReader, split, thoughts
from support.cases import drawn_cases

ANALYSIS = "<|channel|>analysis<|message|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>"
CALL = "<|channel|>commentary to=functions.look <|constrain|>json<|message|>"

SPLIT = [
    # The text, its message, and its thoughts.
    ("Ready.", "Ready.", ""),
    ("", "", ""),
    ("  \n", "  \n", ""),
    ("  Ready. \n", "  Ready. \n", ""),
    ("<think>My secret is 42.</think>Ready.", "Ready.", "My secret is 42."),
    ("<think>\nMy secret is 42.\n</think>\n\nReady.\n", "Ready.\n", "My secret is 42."),
    ("<thinking>Hm.</thinking> Ready.", "Ready.", "Hm."),
    ("<THINK>Hm.</Think>Ready.", "Ready.", "Hm."),
    (" \n<think>Hm.</think>Ready.", "Ready.", "Hm."),
    ("<think></think>\n\nReady.", "Ready.", ""),
    ("<think>嗯，先想一想。</think>好的。", "好的。", "嗯，先想一想。"),
    ("<think>Хм.</think>\nГотово.", "Готово.", "Хм."),
    ("<think>One.</think>\n<think>Two.</think>\nReady.", "Ready.", "One.\n\nTwo."),
    ("So. <think>Hm.</think> Ready.", "So. Ready.", "Hm."),
    ("So.\n\n<think>Hm.</think>\n\nReady.", "So.\n\n\n\nReady.", "Hm."),
    ("So<think>Hm.</think>, ready.", "So, ready.", "Hm."),
    # Not closed: everything after the tag is a thought, because the answer was cut off.
    ("<think>I wonder", "", "I wonder"),
    ("<think>", "", ""),
    ("Ready. <think>I wonder whether", "Ready. ", "I wonder whether"),
    ("<think>I wonder</thi", "", "I wonder</thi"),
    ("<thinking>One tag </think> is no other", "", "One tag </think> is no other"),
    # Not opened: the opening tag is in the prompt, as in some templates.
    ("My secret is 42.</think>Ready.", "Ready.", "My secret is 42."),
    ("Hm.\n</think>\n\nReady.", "Ready.", "Hm."),
    ("Hm.</thinking>Ready.", "Ready.", "Hm."),
    ("</think>Ready.", "Ready.", ""),
    ("Hm.</think>", "", "Hm."),
    ("<think>One, <think>two.</think> three.</think>Ready.", "Ready.", None),
    # In code a tag is code, unless the message begins with it.
    ("The `<think>` tag is gone.", "The `<think>` tag is gone.", ""),
    ("``</think>`` ends it.", "``</think>`` ends it.", ""),
    ("So:\n```xml\n<think>x</think>\n```\nSee?", "So:\n```xml\n<think>x</think>\n```\nSee?", ""),
    ("~~~\n<think>\n~~~", "~~~\n<think>\n~~~", ""),
    ("```python\nprint('<think>')", "```python\nprint('<think>')", ""),
    ("- So:\n  ```\n  <think>\n  ```\n- Yes", "- So:\n  ```\n  <think>\n  ```\n- Yes", ""),
    ("```\n</think>\n```\nHm.</think>Ready.", "Ready.", "```\n</think>\n```\nHm."),
    ("<think>I write `x = 1`:\n```\nx = 1\n</think>Ready.", "Ready.", None),
    ("    <think>Hm.</think>Ready.", "Ready.", "Hm."),
    ("A ` alone. <think>Hm.</think> Ready.", "A ` alone. Ready.", "Hm."),
    ("`a` <think>Hm.</think>`b`", "`a` `b`", "Hm."),
    # Other models' tags.
    ("<thought>Hm.</thought>Ready.", "Ready.", "Hm."),
    ("<thought>\nHm.\n</thought>\n\nReady.", "Ready.", "Hm."),
    ("So. <Thought>Hm.</thought> Ready.", "So. Ready.", "Hm."),
    ("<thought>I wonder", "", "I wonder"),
    ("Hm.</thought>Ready.", "Ready.", "Hm."),
    ("<reasoning>Hm.</reasoning>Ready.", "Ready.", "Hm."),
    ("<reasoning>\nThe <b>user</b> waits.\n</reasoning>\nReady.", "Ready.", None),
    ("<REASONING>I wonder </reason", "", "I wonder </reason"),
    ("Hm.\n</reasoning>\nReady.", "Ready.", "Hm."),
    ("<seed:think>Hm.</seed:think>Ready.", "Ready.", "Hm."),
    ("<seed:think>嗯。</seed:think>\n好的。", "好的。", "嗯。"),
    ("<seed:think>One </think> is no other", "", "One </think> is no other"),
    ("Hm.</seed:think>Ready.", "Ready.", "Hm."),
    ("◁think▷Hm.◁/think▷Ready.", "Ready.", "Hm."),
    ("◁think▷\nХм.\n◁/think▷\n\nГотово.", "Готово.", "Хм."),
    ("◁think▷I wonder ◁/thi", "", "I wonder ◁/thi"),
    ("Hm.◁/think▷Ready.", "Ready.", "Hm."),
    ("◁Ready▷", "◁Ready▷", ""),
    ("Ready ◁", "Ready ◁", ""),
    ("The `<reasoning>` tag is gone.", "The `<reasoning>` tag is gone.", ""),
    ("Write:\n```xml\n<thought>x</thought>\n```", "Write:\n```xml\n<thought>x</thought>\n```", ""),
    ("`◁think▷` and `<seed:think>`", "`◁think▷` and `<seed:think>`", ""),
    (
        "<reason>Hm.</reason><thoughts>x</thoughts>",
        "<reason>Hm.</reason><thoughts>x</thoughts>",
        "",
    ),
    # A tag that is never closed is a word of its sentence.
    ("I use the <reasoning> tag here.", "I use the <reasoning> tag here.", ""),
    ("We call it <thought>, as they do.", "We call it <thought>, as they do.", ""),
    ("There, <think> and", "There, <think> and", ""),
    ("Ready. <reasoning> I wonder", "Ready. ", "I wonder"),
    ("So I <thought>wonder", "So I ", "wonder"),
    # Channels.
    (f"{ANALYSIS}Hm.<|end|>{FINAL}Ready.", "Ready.", "Hm."),
    (f"{ANALYSIS}Hm.<|end|>{FINAL}Ready.<|return|>", "Ready.", "Hm."),
    (f"<|start|>assistant{ANALYSIS}Hm.<|end|>\n{FINAL}\nReady.", "Ready.", "Hm."),
    (f"{ANALYSIS}Hm.{FINAL}Ready.", "Ready.", "Hm."),
    (f"{ANALYSIS}Hm.<|end|>Ready.", "Ready.", "Hm."),
    (f"{ANALYSIS}One.<|end|><|start|>assistant{ANALYSIS}Two.<|end|>{FINAL}Ready.", "Ready.", None),
    (f"{ANALYSIS}One.{ANALYSIS}Two.<|end|>{FINAL}Ready.", "Ready.", "One.\n\nTwo."),
    (f"{ANALYSIS}I wonder", "", "I wonder"),
    (f"{ANALYSIS}I wonder<|end|>", "", "I wonder"),
    (f"{ANALYSIS}I wonder<|end|><|start|>assist", "", "I wonder"),
    (f"{ANALYSIS}Hm.<|end|>{FINAL}Ready.<|end|><|start|>assistant<|cha", "Ready.", "Hm."),
    (f"Hm.<|end|>{FINAL}Ready.", "Ready.", "Hm."),
    (f"{FINAL}Ready.<|return|>", "Ready.", ""),
    ("<|channel|>final<|message|>Ready.", "Ready.", ""),
    ("<|start|>assistant<|message|>Ready.<|end|>", "Ready.", ""),
    (f"{CALL}{{}}<|call|>", "", "{}"),
    (f"{ANALYSIS}Hm.<|end|><|start|>assistant{CALL}{{}}<|call|>", "", "Hm.\n\n{}"),
    (f"Ready.<|end|><|start|>assistant{ANALYSIS}Hm.", "Ready.", "Hm."),
    (f"`{ANALYSIS}` begins it.", f"`{ANALYSIS}` begins it.", ""),
    (f"So:\n```\n{ANALYSIS}x<|end|>\n```\nSee?", f"So:\n```\n{ANALYSIS}x<|end|>\n```\nSee?", ""),
    ("The <|channel|> token names it.", "The <|channel|> token names it.", ""),
    ("<|start|>", "<|start|>", ""),
    # Control tokens at the end.
    *((f"Ready.{one}", "Ready.", "") for one in CONTROL_TOKENS),
    *((f"See {one} here.", f"See {one} here.", "") for one in CONTROL_TOKENS),
    *((f"It is `{one}`", f"It is `{one}`", "") for one in CONTROL_TOKENS),
    *((f"So:\n```\n{one}\n```", f"So:\n```\n{one}\n```", "") for one in CONTROL_TOKENS),
    ("Ready.<|eot_id|>\n<|eot_id|> </s>\n", "Ready.", ""),
    ("Ready.\n<|IM_END|>", "Ready.\n", ""),
    ("```python\nx = 1\n```<|im_end|>", "```python\nx = 1\n```", ""),
    ("```python\nx = 1\n<|im_end|>", "```python\nx = 1\n<|im_end|>", ""),
    ("<|im_end|>", "", ""),
    ("<think>Hm.</think>Ready.<|im_end|>", "Ready.", "Hm."),
    ("<think>Hm.</think><|im_end|>", "", "Hm."),
    ("<think>I wonder<|im_end|>\n", "", "I wonder"),
    ("Hm.</think>\n\nReady.</s>", "Ready.", "Hm."),
    ("It was <s>40</s> 30, not <s>50</s>", "It was <s>40</s> 30, not <s>50</s>", ""),
    ("Ready.<|im_end", "Ready.<|im_end", ""),
    ("Ready.<|im_end|>!", "Ready.<|im_end|>!", ""),
    # No tags.
    ("a < b, and <b>bold</b>", "a < b, and <b>bold</b>", ""),
    ("<thi", "<thi", ""),
    ("<thinker>He.</thinker>", "<thinker>He.</thinker>", ""),
    ("<think >He.", "<think >He.", ""),
]


@pytest.mark.part(60)
@pytest.mark.parametrize(("text", "speech", "thought"), SPLIT)
def test_r2_thought_is_told_from_speech(text: str, speech: str, thought: str | None) -> None:
    read = split(text)
    assert read.speech == speech
    if thought is not None:
        assert read.thought == thought


@pytest.mark.part(40)
@pytest.mark.parametrize("text", [text for text, *_ in SPLIT])
def test_r2_the_same_is_told_piece_by_piece(text: str) -> None:
    for size in range(1, len(text) + 1):
        assert_same(text, [text[at : at + size] for at in range(0, len(text), size)])


PIECES = st.sampled_from(
    [
        *("<think>", "</think>", "<thinking>", "</thinking>", "<", "think>"),
        *("<reasoning>", "</reasoning>", "◁think▷", "◁/think▷", "<seed:think>", "◁", "reasoning>"),
        *(ANALYSIS, FINAL, CALL, "<|channel|>", "<|message|>", "<|start|>", "final", "|>"),
        *("<|end|>", "<|return|>", "<|im_end|>", "</s>", "<s>", "<|eot_id|>"),
        *("`", "``", "```", "```\n", "~~~\n", "\n", " ", "a", "b c", "- ", "###", "STOP", "!"),
    ]
)


@drawn_cases(40, 6000, text=st.lists(PIECES, max_size=16).map("".join), data=st.data())
def test_r2_any_cut_of_any_text_is_told_alike(text: str, data: st.DataObject) -> None:
    places = st.integers(0, len(text))
    cuts = [0, *sorted(data.draw(st.lists(places, max_size=8))), len(text)]
    assert_same(text, [text[a:b] for a, b in pairwise(cuts)])


def assert_same(text: str, pieces: list[str]) -> None:
    whole, reader, told = split(text), ThoughtReader(), ""
    found = [reader.take(piece) for piece in pieces]
    for one in [*found, reader.take("", is_over=True)]:
        told = one.speech if one.anew else told + one.speech
    assert told == reader.speech == whole.speech
    assert reader.thought == whole.thought


def test_r2_what_may_be_a_tag_is_held_back() -> None:
    reader = ThoughtReader()
    assert reader.take("So <").speech == "So "
    assert reader.take("thin").speech == ""
    assert reader.take("gs>").speech == "<things>"
    assert reader.take(" <think>").speech == " "
    assert reader.take("My secret is 42.").speech == ""
    assert reader.take("</think").speech == ""
    assert reader.take(">Yes").speech == "Yes"


def test_r2_what_an_unopened_thought_has_told_is_taken_back() -> None:
    reader = ThoughtReader()
    assert reader.take("My secret").speech == "My secret"
    found = reader.take("</think>Yes")
    assert (found.speech, found.anew, reader.is_unopened) == ("Yes", True, True)


@pytest.mark.parametrize("text", ["My secret is 42.</think>Yes", "<think>Hm.</think>Yes", "Yes"])
def test_r2_where_an_unopened_thought_is_expected_nothing_is_told_before_it_is_closed(
    text: str,
) -> None:
    reader = ThoughtReader(is_unopened=True)
    told = [reader.take(letter) for letter in text]
    told.append(reader.take("", is_over=True))
    assert "".join(one.speech for one in told) == "Yes"
    assert not any(one.anew for one in told)


@pytest.mark.part(4)
@pytest.mark.parametrize(
    "piece",
    [
        *("<think>", "</think>", "<", "`<think>` ", "`<think>`</think>", "```\n<think>\n"),
        *("```\n```\n<think>a</think>\n", "<think>a</think> b ", "a\n`<think>\n"),
        *("<|end|>", "<|start|>", "<|start|>a", "<|channel|>a", "</s>", "</s> a", ANALYSIS, FINAL),
        *(f"{ANALYSIS}a<|end|>{FINAL}b<|end|>", "a <think> b ", "◁think▷", "◁", "<s></s>"),
    ],
)
def test_r2_a_huge_text_is_split_in_linear_time(piece: str) -> None:
    huge = piece * (50_000 // len(piece))
    assert len(split(huge).speech) + sum(end - start for start, end in thoughts(huge)) == len(huge)


def test_r2_what_is_not_thought_keeps_its_place() -> None:
    text = "<think>Hm.</think>\nSo. <think>Yes.</think> Ready."
    assert [text[start:end] for start, end in thoughts(text)] == [
        "<think>Hm.</think>\n",
        "<think>Yes.</think> ",
    ]


TOKENS: list[tuple[str, Match]] = [
    ("###STOP###", "last"),
    ("###STOP###", "alone"),
    ("STOP", "alone"),
    ("STOP", "anywhere"),
    ("<STOP_IT>", "last"),
]


@example(". `###STOP###```\n", ("###STOP###", "last"), 1)
@settings(max_examples=400)
@given(
    st.lists(
        st.sampled_from(
            [
                *("###STOP###", "STOP", "###", "#", "S", "TOP", "**", "\n", " ", ". ", "! "),
                *('"', "`", "Thank you", "so ", "```\n", "> ", "stop", "Stop", "Ann: ", "Ann", ":"),
                *("👋", "(", ")", ", ", " - ", "...", "?", ":)", "<", ">", "STOP_IT", "I say "),
            ]
        ),
        max_size=12,
    ).map("".join),
    st.sampled_from(TOKENS),
    st.integers(1, 5),
)
def test_r2_no_part_of_a_done_token_is_told_before_it_is_known(
    text: str, token: tuple[str, Match], size: int
) -> None:
    word, match = token
    heard, known = without(word, text, match, "Ann"), 0
    for end in range(0, len(text) + 1, size):
        known = settled(word, text[:end], match, known, "Ann")
        # The streamed text is the beginning of the heard text.
        assert heard.startswith(text[:known])
