"""R6: the final verdict at a cap, in forks and streams. Its rules are rows of `scripts.toml`."""

from uuid import uuid4

from duologue.graphs import Session, stream
from duologue.graphs.events import ConversationEnded, VerdictGiven
from duologue.nodes.testing import ScriptedChatModel
from support.results import outcome_of
from support.scripts import TOOLS, read_scripts, run_row, talk

AT_CAP = read_scripts(__file__)["R6: at the round cap, all criteria are met"]


def test_r6_a_fork_with_more_rounds_goes_on_as_if_it_had_not_been_asked() -> None:
    store = f"memory:{uuid4().hex}"
    result = run_row(AT_CAP, store=store)
    at = outcome_of(result).message
    new = result.session.fork(at=at, end_chat={"max_iterations": 2}).id
    half = {"criterion_1": "met", "criterion_2": "inconclusive"}
    model = ScriptedChatModel(script=["Where do we meet?", "At the pier.", half])
    more = Session(new, store=store).resume(model=model, tools=TOOLS)
    assert (outcome_of(more).rounds, outcome_of(more).complete) == (2, False)


def test_r6_the_stream_tells_it() -> None:
    model = ScriptedChatModel(script=AT_CAP["script"])
    *events, ended = stream(talk(**AT_CAP["fields"]), model=model, store="memory:", tools=TOOLS)
    assert isinstance(ended, ConversationEnded)
    assert ended.complete is True
    (given,) = [event for event in events if isinstance(event, VerdictGiven)]
    assert given.verdict.final
