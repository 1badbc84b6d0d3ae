# Follow the events of a conversation with match, and print each message while it is written.
from duologue import role_play, stream
from duologue.graphs.events import (
    ConversationEnded,
    MessageSaid,
    MessageStarted,
    MessageToken,
    TaskSpecified,
)

garden = role_play("Plan a kitchen garden", "Owner", "Gardener", max_iterations=2)
for event in stream(garden):
    match event:
        case TaskSpecified(text=task):
            print("The task:", task)
        case MessageStarted(speaker=speaker):
            print(f"{speaker}: ", end="")
        case MessageToken(text=text):
            print(text, end="", flush=True)
        case MessageSaid():
            print()
        case ConversationEnded(reason=reason, rounds=rounds):
            print(f"{reason.value} after {rounds} rounds")
