# Answer a chat that waits for a person, fork it at a message, resume the fork and export it.
from duologue import chat, converse

result = converse(chat(assistant="Guide", assistant_prompt="You are a city guide."))
print(result)

result = result.session.answer("What should I see in Rome?")
print(result)

# Get a second answer to the same question in a new session.
branch = result.session.fork(at=result.messages[0])
print(branch.resume().last_message("Guide"))
print(branch.answer("exit").stop_reason)
print(branch.export("markdown"))
