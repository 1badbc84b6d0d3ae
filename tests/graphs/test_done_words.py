"""Which messages say a done token: as models write their last message, and as they mention it."""

# ruff: noqa: RUF001

import pytest
from hypothesis import given, strategies as st

from duologue.graphs import DoneToken
from duologue.graphs.text.done_words import default_match, ends_with, says, without

STOP = "###STOP###"

LAST = [
    # The message, a line of its own, or behind a sentence's end; with what others hear of it.
    ("###STOP###", ""),
    ("  ###STOP###\n", ""),
    ("**###STOP###**", ""),
    ("`###STOP###`", ""),
    ('"###STOP###"', ""),
    ("\u200b###STOP###\ufeff", None),
    ("That is all I need.\n###STOP###", "That is all I need."),
    ("That is all I need.\n\n**###STOP###**", "That is all I need."),
    ("###STOP###\nThank you for your help.", "Thank you for your help."),
    ("Good.\r\n###STOP###\r\nBye.", "Good.\r\nBye."),
    ("Thanks, bye\n###STOP###", "Thanks, bye"),
    ("- milk\n- eggs\n###STOP###", "- milk\n- eggs"),
    ("Thank you! ###STOP###", "Thank you!"),
    ("Thank you!###STOP###", "Thank you!"),
    ("Thank you for your help. ###STOP###", "Thank you for your help."),
    ("Great, my flight is changed. Have a good day! ###STOP###\n", None),
    ("Is that so? Then we are done. ###STOP###", "Is that so? Then we are done."),
    ("Really?! ###STOP###", "Really?!"),
    ("Perfect! **###STOP###**", "Perfect!"),
    ("**Perfect!** ###STOP###", "**Perfect!**"),
    ("_All booked._ _###STOP###_", "_All booked._"),
    ("(You were very kind.) ###STOP###", "(You were very kind.)"),
    ('He said "It is done." ###STOP###', 'He said "It is done."'),
    ("She said “yes”. ###STOP###", "She said “yes”."),
    ("I paid $42.50. ###STOP###", "I paid $42.50."),
    ("My seat is 14C. ###STOP###", "My seat is 14C."),
    ("No. ###STOP###", "No."),
    ("42. ###STOP###", "42."),
    ("See you at 5 p.m. ###STOP###", "See you at 5 p.m."),
    ("I live in the U.S. ###STOP###", "I live in the U.S."),
    ("The file is `notes.txt`. ###STOP###", "The file is `notes.txt`."),
    ('A 27" screen and a 24" one. ###STOP###', 'A 27" screen and a 24" one.'),
    ("It's done, that's all. ###STOP###", "It's done, that's all."),
    ("Run it:\n```\nmake\n```\n###STOP###", "Run it:\n```\nmake\n```"),
    ("Thanks a lot 😊 ###STOP###", "Thanks a lot 😊"),
    ("Thanks a lot! 👍🏽 ###STOP###", "Thanks a lot! 👍🏽"),
    ("Merci ❤️ ###STOP###", "Merci ❤️"),
    ("Thank you :) ###STOP###", "Thank you :)"),
    ("<think>All is met, so I stop.</think>\n###STOP###", None),
    ("<think>Is it all?</think>Thank you! ###STOP###", None),
    ("It seems to be all, I can end.</think>\n\nThank you! ###STOP###", None),
    ("The `<think>` tag is gone. ###STOP###", "The `<think>` tag is gone."),
    ("Vielen Dank, das war alles! ###STOP###", "Vielen Dank, das war alles!"),
    ("Er sagte: „Fertig.“ ###STOP###", "Er sagte: „Fertig.“"),
    ("Merci beaucoup ! ###STOP###", "Merci beaucoup !"),
    ("Il a dit « oui ». ###STOP###", "Il a dit « oui »."),
    ("¡Muchas gracias! ###STOP###", "¡Muchas gracias!"),
    ("Grazie mille, è tutto. ###STOP###", "Grazie mille, è tutto."),
    ("Muito obrigado pela ajuda. ###STOP###", "Muito obrigado pela ajuda."),
    ("Спасибо, это всё. ###STOP###", "Спасибо, это всё."),
    ("Дякую! ###STOP###", "Дякую!"),
    ("Ευχαριστώ, αυτό ήταν. ###STOP###", "Ευχαριστώ, αυτό ήταν."),
    ("Θέλετε κάτι άλλο; ###STOP###", "Θέλετε κάτι άλλο;"),
    ("谢谢！###STOP###", "谢谢！"),
    ("好的，就这样。 ###STOP###", "好的，就这样。"),
    ("他说“可以了。”###STOP###", "他说“可以了。”"),
    ("ありがとうございました。###STOP###", "ありがとうございました。"),
    ("「終わりです。」###STOP###", "「終わりです。」"),
    ("감사합니다! ###STOP###", "감사합니다!"),
    ("धन्यवाद। ###STOP###", "धन्यवाद।"),
    ("ধন্যবাদ। ###STOP###", "ধন্যবাদ।"),
    ("شكراً جزيلاً، هذا كل شيء. ###STOP###", None),
    ("هل انتهينا؟ ###STOP###", "هل انتهينا؟"),
    ("آپ کا شکریہ۔ ###STOP###", "آپ کا شکریہ۔"),
    ("תודה רבה! \u200f###STOP###", None),
    ("Շնորհակալություն։ ###STOP###", "Շնորհակալություն։"),
    ("አመሰግናለሁ። ###STOP###", "አመሰግናለሁ።"),
    ("ကျေးဇူးတင်ပါတယ်။ ###STOP###", "ကျေးဇူးတင်ပါတယ်။"),
    ("អរគុណ។ ###STOP###", "អរគុណ។"),
    ("ขอบคุณค่ะ ###STOP###", "ขอบคุณค่ะ"),
    ("ขอบคุณครับ###STOP###", "ขอบคุณครับ"),
    ("ཐུགས་རྗེ་ཆེ། ###STOP###", "ཐུགས་རྗེ་ཆེ།"),
    ("Cảm ơn bạn. ###STOP###", "Cảm ơn bạn."),
    ("Teşekkürler! ###STOP###", "Teşekkürler!"),
    ("Dziękuję, to wszystko. ###STOP###", "Dziękuję, to wszystko."),
]

NOT_LAST = [
    "",
    "Then I will say ###STOP###",
    "I will say ###STOP### when I am done.",
    "You have to say ###STOP###.",
    "###STOP###?",
    "Shall I say ###STOP###?",
    "###STOP### is what I say at the end.",
    "Thank you! ###STOP### Oh, one more thing.",
    "Thank you! ###STOP###, I mean: not yet.",
    "I end with this: ###STOP###",
    "First we talk; ###STOP###",
    "Not before the end, ###STOP###",
    "Thank you - ###STOP###",
    "And then I say... ###STOP###",
    "And then I say… ###STOP###",
    "Some word, e.g. ###STOP###",
    "The token, i.e. ###STOP###",
    "Ein Wort, z. B. ###STOP###",
    "Слово, т. е. ###STOP###",
    "The words are:\n1. ###GO###\n2. ###STOP###",
    "Say these: 1. thanks. 2. ###STOP###",
    "The words are:\n- ###GO###\n- ###STOP###",
    "Use `###STOP###`",
    "This ends it. `###STOP###`",
    "This ends it. `say ###STOP###`",
    "This ends it: `Thanks. ###STOP###`",
    "The last message is:\n```\n###STOP###\n```",
    "The last message is:\n```\nThanks. ###STOP###\n```",
    "The last message is:\n~~~text\n###STOP###\n~~~\nNot yet, though.",
    "```python\nprint('bye')\n###STOP###",
    "- Like this:\n  ```\n  ###STOP###\n  ```",
    'You say "###STOP###"',
    'You say: "Thank you. ###STOP###"',
    'He said: "Thank you.\n###STOP###\nBye."',
    "You say “Thank you. ###STOP###”",
    "Du sagst „Danke. ###STOP###“",
    "Tu dis « Merci. ###STOP### »",
    "你说「谢谢。###STOP###」",
    "你会说“谢谢。###STOP###”",
    "You say 'Thank you. ###STOP###'",
    "> Thank you. ###STOP###",
    "You wrote:\n> ###STOP###",
    "<think>I should say ###STOP###</think>What else?",
    "<think>All is done.\n###STOP###\n</think>What else?",
    "<think>All is done. ###STOP###",
    "All is done. ###STOP###</think>What else is there?",
    "Then I will say <think>now</think>###STOP###",
    "###stop###",
    "STOP",
    "Thank you! ##STOP##",
    "Dann sage ich ###STOP###",
    "Entonces diré ###STOP###",
    "Alors je dirai : ###STOP###",
    "Тогда я скажу ###STOP###",
    "然后我会说###STOP###",
    "그러면 ###STOP###",
    "ثم أقول ###STOP###",
    "तब मैं कहूँगा ###STOP###",
    "แล้วฉันจะพูดว่า ###STOP###",
    "それから###STOP###",
]


def test_the_table_is_long() -> None:
    assert len(LAST) + len(NOT_LAST) >= 80


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
