# A chat that waits for a person, is answered, forked at a message, resumed and exported.
from duologue import chat, converse

result = converse(chat(assistant="Guide", assistant_prompt="You are a city guide."))
print(result)

result = result.session.answer("What should I see in Rome?")
print(result)

# A second answer to the same question, in a session of its own.
branch = result.session.fork(at=result.messages[0])
print(branch.resume().last_message("Guide"))
print(branch.answer("exit").stop_reason)
print(branch.export("markdown"))
