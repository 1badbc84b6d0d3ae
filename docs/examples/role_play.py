# Let two experts plan a garden, then print the conversation and the reason for its end.
from duologue import converse, role_play

garden = role_play("Plan a kitchen garden", "Owner", "Gardener", max_iterations=3)
result = converse(garden)
print(result)
print("Reason:", result.stop_reason)
for step in result.why():
    print("-", step)
