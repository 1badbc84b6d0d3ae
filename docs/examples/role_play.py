# Two experts plan a garden. The program prints the conversation, and why it ended.
from duologue import converse, role_play

garden = role_play("Plan a kitchen garden", "Owner", "Gardener", max_iterations=3)
result = converse(garden)
print(result)
print("Reason:", result.stop_reason)
for step in result.why():
    print("-", step)
