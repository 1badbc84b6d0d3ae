"""What ends a conversation, in a few words."""

from ...ends.end import alternatives, count_of
from ...speakers.replies import HumanInputMode, HumanReply
from ..fields import ConversationFields


def how_it_ends(conversation: ConversationFields) -> list[str]:
    """Say what ends a conversation, each in a few words."""
    end_chat = conversation.end_chat
    cap = end_chat.max_iterations
    found = [] if cap is None else [f"after {count_of(cap, 'round')}"]
    found += [end.describe_end() for end in alternatives(end_chat.when)]
    if end_chat.waits_for_tasks:
        asked = ", ".join(conversation.stoppers)
        who = "the judge is" if conversation.has_separate_judge else "it is"
        found.append(f"by completed tasks ({end_chat.mode.value}; {who} asked after {asked})")
    for speaker in conversation.speakers:
        if speaker.human is not None:
            found += _by_people(speaker.human)
    return found


def _by_people(human: HumanReply) -> list[str]:
    mode, most = human.human_input_mode, human.max_consecutive_auto_reply
    word = f"at a message that ends with {human.termination}"
    if mode is HumanInputMode.ALWAYS:
        return ["when the person leaves"]
    if mode is HumanInputMode.TERMINATE:
        return [f"{word}, unless the person goes on", "when the person leaves"]
    return [word, f"after {most:,} automatic replies in a row"]
