"""The prompts of a speaker: its system prompt, its cues, and requests to rewrite a reply."""

from .texts import PROMPTS, fill_template as fill_template

CONVERSATION_TASK = PROMPTS["conversation_task"]
SPEAKER_TASK = PROMPTS["speaker_task"]
PARTICIPANT = PROMPTS["participant"]

SPEAKER_LABELS = PROMPTS["speaker_labels"]

MODERATOR_LABEL = PROMPTS["moderator_label"]
"""The label of the conversation's own messages if the speakers' messages have no labels."""

BEGIN = PROMPTS["begin"]
CONTINUE_CONVERSATION = PROMPTS["continue_conversation"]
YOUR_TURN = PROMPTS["your_turn"]
ALL_SPEAK = PROMPTS["all_speak"]
"""The cue before a round in which all speakers speak at once."""

NEW_TASK = PROMPTS["new_task"]
RESTATE_TASK = PROMPTS["restate_task"]
"""The task of a speaker after its memory is reset."""

REWRITE_REPLY = PROMPTS["rewrite_reply"]
"""The request to rewrite a reply. It begins with the problem."""

STOP_REPEATED_CALLS = PROMPTS["stop_repeated_calls"]
"""The request to a speaker that repeats a call. Its problem is REPEATED_CALLS."""

CALL_TOOL = PROMPTS["call_tool"]
"""The request to a speaker that writes a call as text. Its problem is WRITTEN_CALL."""

EMPTY_REPLY = PROMPTS["empty_reply"]
WRONG_SPEAKER = PROMPTS["wrong_speaker"]
NO_CONTENT = PROMPTS["no_content"]
REPEATED_REPLY = PROMPTS["repeated_reply"]
ECHOED_REPLY = PROMPTS["echoed_reply"]
PREMATURE_END = PROMPTS["premature_end"]
REPEATED_CALLS = PROMPTS["repeated_calls"]
WRITTEN_CALL = PROMPTS["written_call"]

CONTINUE_REPLY = PROMPTS["continue_reply"]
SHORTEN_REPLY = PROMPTS["shorten_reply"]

LAST_MESSAGE = PROMPTS["last_message"]
ROUNDS_LEFT = PROMPTS["rounds_left"]
