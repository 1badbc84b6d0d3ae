"""The replies of models and people in the gallery, in the order of the calls."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, Final

from duologue.nodes.testing import Line, Reply, ScriptedToolCall

_numbers: Final = count(1)


def _calls(name: str, **arguments: object) -> Reply:
    call = ScriptedToolCall(name=name, args=arguments, id=f"call_{next(_numbers)}")
    return Reply(tool_calls=(call,))


def _hands_over(to: str, message: str, **more: object) -> Reply:
    return _calls("hand_off", to=to, message=message, **more)


def _found(agree: str, time: str) -> dict[str, str]:
    """Return the judge's verdict on its two criteria."""
    return {"criterion_1": agree, "criterion_2": time}


def _next(name: str) -> dict[str, str]:
    """Return the moderator's choice."""
    return {"next_speaker": name}


_BROKEN_CODE: Final = """\
I follow each number down to 1, and remember the longest way.

```python
best = (0, 0)
for start in range(1, 1000):
    number, steps = start, 0
    while number != 1:
        number = number // 2 if number % 2 == 0 else 3 * number + 1
        steps += 1
    best = max(best, (step, start))
print(best)
```"""

_MENDED_CODE: Final = """\
The counter is called `steps`, not `step`. Here is the corrected code. It also finds the
highest number on the way.

```python
best = (0, 0, 0)
for start in range(1, 1000):
    number, steps, highest = start, 0, start
    while number != 1:
        number = number // 2 if number % 2 == 0 else 3 * number + 1
        steps += 1
        highest = max(highest, number)
    best = max(best, (steps, start, highest))
print(best)
```"""

_ADA: Final = [
    "My terrace has the sun from four o'clock until it sets behind your garden. Above one metre "
    "and a half the hedge takes all of it.",
    "I planted tomatoes on that terrace because it has the sun. One metre and a half leaves it to "
    "them, and nothing higher does.",
]
_BO: Final = [
    "And I read on the bench behind it. Below two metres and a half everybody on your terrace "
    "can count my pages.",
    "I gave up my front garden to the street already. On this side I want to sit unseen, and that "
    "takes two metres and a half.",
]
_CLARA: Final = [
    "I hear a wish for sun and a wish for peace. Could each of you name one thing that you might "
    "give up for the other?",
    "The hedge need not be as high at your bench as at your terrace. Would either of you walk "
    "along it with me?",
]

REPLIES: Final[Mapping[str, Sequence[Line]]] = {
    "a-lesson-for-half-a-cent": [
        "Prepare a 45-minute lesson on how clouds form, for ten-year-olds on a rainy day, with one "
        "experiment that needs nothing but a jar, warm water, ice and a match.",
        "Instruction: Choose the experiment, and say what the children will see.\nInput: A jar, "
        "warm water, ice cubes and a match.",
        "Solution: A cloud in a jar. Pour three fingers of warm water into the jar, drop in a "
        "match that has just been blown out, and put a lid of ice cubes on top. Within a minute a "
        "white swirl hangs under the ice. Lift the lid, and the cloud climbs out.\nNext request.",
        "Instruction: Explain to ten-year-olds why there is no cloud without the match.\n"
        "Input: None",
        "Solution: Water in the air is shy. It does not like to be the first drop, so it looks for "
        "something to hold on to. The smoke of the match is full of tiny specks, and each drop "
        "sits down on one of them. Without specks the water is there, but nobody sees it.\n"
        "Next request.",
        "Instruction: Give the lesson a beginning that makes use of the rain outside.\nInput: None",
        "Solution: Open a window and let everybody listen for half a minute. Then ask: where was "
        "this water this morning? Collect the guesses on the board, the wild ones too. At the end "
        "of the lesson the class comes back to the board and crosses out what can't be true.\n"
        "Next request.",
        "Instruction: Write three questions for the end of the lesson.\nInput: None",
    ],
    "a-boat-is-sold": [
        "Good morning! I have walked around the Seagull twice now. She is lovely, but the varnish "
        "is tired and the sail has a patch. I could offer 3,000.",
        Reply(
            reasoning="She likes the boat. I need 3,500, so there is room above it.",
            text="The patch is my own work, and it has seen two storms. I was thinking of 4,500.",
        ),
        Reply(
            reasoning="4,500 is more than I have. The work that she needs is my best argument.",
            text="Before summer I would have to haul her out and sand the whole hull. 3,400, and "
            "I take her as she is.",
        ),
        Reply(
            reasoning="3,400 is too little by a hundred. The trailer costs me nothing.",
            text="As she is, but with the trailer and a new sail that is still in its bag: 4,000.",
        ),
        Reply(
            reasoning="With sail and trailer she is worth it. Still, 4,000 is all I have.",
            text="A new sail! You kept that for the end. 3,700 then, and I pay this afternoon.",
        ),
        Reply(
            reasoning="3,700 is above my limit, and a month at the pier costs 90.",
            text="This afternoon saves me another month at the pier. 3,700 with the trailer, the "
            "sail, and an hour in which I show you how to reef her.",
        ),
        "DEAL",
    ],
    "dinner-for-three": [
        "I look for a kitchen that cooks vegetables on purpose. Two come to mind: Casa Lenta by "
        "the river, and the noodle bar in the station.",
        "Twenty euros with a drink means no tablecloth. A bowl in the noodle bar is 12 euros, a "
        "plate at the Turkish place on the square 14.",
        "From the station or the square I reach my train at 21:04. From the river I don't.",
        "I would love Casa Lenta: three courses without meat, and a table by the water.",
        _found("not_met", "not_met"),
        "Three courses by the water are 38 euros. What about the noodle bar? A bowl is 12, and "
        "four of them come without meat.",
        _found("not_met", "not_met"),
        "The noodle bar is two minutes from my platform. I am for it. Half past seven?",
        _found("inconclusive", "met"),
        "Four bowls without meat are three more than I hoped for. The noodle bar, at half past "
        "seven. I'll get the table by the window.",
        _found("met", "met"),
    ],
    "why-the-night-is-dark": [
        "The sky is dark at night because the sun has set. The stars are bright, but they are too "
        "far away to light up the sky. That is all there is to it.",
        "It reads easily, but it steps around the puzzle. In an endless space full of stars each "
        "line of sight would meet a star somewhere, however far away. Ask that question first, and "
        'end with something better than "that is all".',
        "Look between two stars tonight. If space were full of stars for ever and in all "
        "directions, another one would stand in that gap, and another behind it, until no gap was "
        "left, and midnight would be as bright as noon. It is dark because the universe has an "
        "age: the light of the farthest stars is still on its way.",
        "Now the dark is a surprise, which is what I hoped for. Two things are missing: how old "
        "the universe is, and what became of the oldest light, which has arrived and which nobody "
        "sees.",
        "Look between two stars tonight. If space were full of stars for ever and in all "
        "directions, another one would stand in that gap, and another behind it, until no gap was "
        "left, and midnight would be as bright as noon. It is dark because the universe is only "
        "13.8 billion years old: the light of the farthest stars is still on its way. The oldest "
        "light of all has arrived, and it comes from every gap. But space has grown so much on "
        "its way that it was stretched from a glow into a whisper, which radios hear and no eye "
        "sees.",
    ],
    "the-longest-way-down": [
        _BROKEN_CODE,
        _MENDED_CODE,
        "Below 1,000 it is **871**: it takes 178 steps to reach 1, and climbs to 190,996 on its "
        "way.",
    ],
    "the-household-account": [
        _calls("pay", to_user="I pay Holm's bill.", payee="Holm", euros=420),
        "Holm has his 240 euros. I had read 420: thank you for looking.",
        _calls("pay", to_user="And the roofer.", payee="Lund", euros=600),
        "Then Lund waits. Tell me after the first night of rain, and I pay him the same day.",
    ],
    "a-bicycle-is-repaired": [
        _hands_over(
            "Mechanic",
            "A city bike, three years old. The gears slip when she starts at the lights, and she "
            "needs it for work each day. What is it?",
        ),
        _hands_over(
            "Parts",
            "The chain is longer than it should be, and has worn the cassette. I need one of each, "
            "for eight gears. Do we have them?",
        ),
        Reply(
            tool_calls=(
                *_calls("stock", part="cassette").tool_calls,
                *_calls("stock", part="chain").tool_calls,
            )
        ),
        _hands_over("Mechanic", "One cassette is here. The chains come on Wednesday."),
        _hands_over(
            "Desk",
            "Then Thursday: a chain, a cassette and an hour of work. Between us: I told her in "
            "spring that the chain was fine. Take half the price for the hour.",
            private=True,
        ),
        _hands_over("Till", "A cassette for 38 euros, a chain for 22, and half an hour at 56."),
        _calls("calculator", expression="38 + 22 + 56 / 2"),
        _hands_over("Desk", "That makes 88 euros."),
        _calls("book", day="Thursday", euros=88),
    ],
    "the-hedge": [
        _ADA[0],
        _next("Bo"),
        _BO[0],
        _next("Clara"),
        _CLARA[0],
        _next("Ada"),
        _ADA[1],
        _next("Bo"),
        _BO[1],
        _next("Clara"),
        _CLARA[1],
        _next("Ada"),
        _ADA[0],
        _next("Bo"),
        _BO[0],
        _next("Clara"),
        _CLARA[0],
        _next("Ada"),
        _ADA[1],
        _next("Bo"),
        _BO[1],
        _next("Clara"),
        _CLARA[1],
    ],
}
"""The models' replies, by the name of the conversation."""

ANSWERS: Final[Mapping[str, Sequence[Any]]] = {
    "the-household-account": [
        "Please pay the carpenter. Holm's bill is 240 euros.",
        {
            "decisions": [
                {
                    "type": "edit",
                    "edited_action": {"name": "pay", "args": {"payee": "Holm", "euros": 240}},
                }
            ]
        },
        "And what about the roofer? Lund wants 600 for the work so far.",
        {
            "decisions": [
                {"type": "reject", "message": "Not before the roof has kept out the rain."}
            ]
        },
        "exit",
    ],
}
"""The person's answers, by the name of the conversation."""
