"""Mistakes that type checkers must refuse: each line needs its comment. Checked, never run."""

from duologue.graphs import (
    Conversation,
    DoneToken,
    EndChat,
    Guards,
    Handoff,
    HumanReply,
    LabelledFormat,
    LastMessages,
    MaxMessages,
    ModelSettings,
    Predicate,
    Price,
    SeparateJudge,
    Session,
    Speaker,
    ToolCalled,
    ask,
    blogger,
    build_graph,
    chat,
    coder,
    converse,
    group_solve,
    remember,
    role_play,
    stream,
    user_proxy,
)
from duologue.graphs.events import ConversationEnded, MessageSaid
from duologue.nodes.testing import Reply

ann, bob = Speaker(name="Ann", task="a"), Speaker(name="Bob", task="b")
talk = Conversation(task="Plan.", speakers=[ann, bob])

# Misspelt options.
role_play("Plan", "Owner", "Gardener", max_iteration=3)  # type: ignore[call-arg]
role_play("Plan", "Owner", "Gardener", usr={"tools": []})  # type: ignore[call-arg]
role_play("Plan", "Owner", "Gardener", writer={"tools": []})  # type: ignore[call-arg]
blogger("Bees", round=2)  # type: ignore[call-arg]
coder("Add.", excutions=2)  # type: ignore[call-arg]
chat("Hi.", tols=["clock"])  # type: ignore[call-arg]
user_proxy("Hi.", human_mode="NEVER")  # type: ignore[call-arg]
group_solve([ann, bob], shift_ownr="Ann")  # type: ignore[call-arg]
talk.replace(sed=3)  # type: ignore[call-arg]
ann.replace(tols=["clock"])  # type: ignore[call-arg]
Handoff(privat=True)  # type: ignore[call-arg]
remember(ann, word=9)  # type: ignore[call-arg]
Session("s").fork(sed=3)  # type: ignore[call-arg]
Session("s").resume(store="memory:")  # type: ignore[call-arg]
Session("s").resumed()  # type: ignore[attr-defined]
converse(talk, modell="m")  # type: ignore[call-arg]
stream(talk, stor="memory:")  # type: ignore[call-arg]
Speaker(name="Ann", tols=["clock"])  # type: ignore[call-arg]
ask(ann, "Hi.", shema=None)  # type: ignore[call-arg]
Conversation(task="Plan.", speakers=[ann, bob], seeed=3)  # type: ignore[call-overload]
EndChat(max_iteration=3)  # type: ignore[call-arg]
ModelSettings(temprature=0)  # type: ignore[call-arg]
SeparateJudge(criterion=["Done."])  # type: ignore[call-arg]
HumanReply(mode="NEVER")  # type: ignore[call-arg]
Reply(txt="Hi.")  # type: ignore[call-arg]

# Missing arguments.
role_play("Plan", "Owner")  # type: ignore[call-arg]
blogger()  # type: ignore[call-arg]
Speaker(system_prompt="You lead.")  # type: ignore[call-arg]
Conversation(task="Plan.")  # type: ignore[call-overload]
LabelledFormat(end="Over.")  # type: ignore[call-arg]
ToolCalled(by="Ann")  # type: ignore[call-arg]
DoneToken()  # type: ignore[call-arg]
MaxMessages()  # type: ignore[call-arg]
Conversation("Plan.")  # type: ignore[call-overload]

# Too many positional arguments.
LastMessages(3, 4)  # type: ignore[call-arg, arg-type]
Guards(2)  # type: ignore[call-arg]

# Invalid values.
role_play("Plan", "Owner", "Gardener", max_iterations="3")  # type: ignore[arg-type]
role_play("Plan", "Owner", "Gardener", user=5)  # type: ignore[arg-type]
chat(5)  # type: ignore[arg-type]
chat("Hi.", tools=[3])  # type: ignore[list-item]
chat("Hi.", interrupt_on=["clock"])  # type: ignore[arg-type]
chat("Hi.", "Bob")  # type: ignore[call-arg]
coder("Add.", executions="2")  # type: ignore[arg-type]
coder("Add.", end_chat=3)  # type: ignore[arg-type]
blogger("Bees", people=3)  # type: ignore[arg-type]
user_proxy("Hi.", human_input_mode=1)  # type: ignore[arg-type]
group_solve([ann, bob], reconcile_first_message="yes")  # type: ignore[arg-type]
group_solve(5)  # type: ignore[arg-type]
Speaker(name="Ann", replies=[3])  # type: ignore[list-item]
Speaker(name="Ann", on_length="again")  # type: ignore[arg-type]
Conversation(task="Plan.", speakers=["Ann", "Bob"])  # type: ignore[list-item]
EndChat(on_guard="stop")  # type: ignore[arg-type]
EndChat(guards=3)  # type: ignore[arg-type]
Speaker("Ann", 3)  # type: ignore[arg-type]
Conversation("Plan.", ["Ann", "Bob"])  # type: ignore[list-item]
DoneToken(3)  # type: ignore[arg-type]
MaxMessages("3")  # type: ignore[arg-type]
Speaker("Ann", memory=[7])  # type: ignore[list-item]
Price("1", 2)  # type: ignore[arg-type]
Predicate(3)  # type: ignore[arg-type]
talk.replace(end_chat=9)  # type: ignore[arg-type]
converse(talk, answer="Hi.")  # type: ignore[arg-type]
build_graph(form="chat")  # type: ignore[arg-type]
build_graph(conversation=5)  # type: ignore[arg-type]
build_graph().invoke([talk])  # type: ignore[arg-type]
build_graph().invoke(talk)  # type: ignore[arg-type]

# Misspelt attributes of events.
for event in stream(talk):
    match event:
        case MessageSaid(speeker=who):  # type: ignore[misc]
            pass
        case _:
            pass
    match event:
        case MessageSaid():
            print(event.txt)  # type: ignore[attr-defined]
        case ConversationEnded():
            print(event.reson)  # type: ignore[attr-defined]
        case _:
            print(event.text)  # type: ignore[union-attr]
    if event.event == "mesage":  # type: ignore[comparison-overlap]
        pass
