"""Control tokens that servers leave at the end of an answer. Pure functions.

A chat template ends a message with one. A server whose template does not fit the model passes it on
as text.
"""

from typing import Final

ENDS: Final = ("<|end|>", "<|return|>", "<|call|>")
"""The tokens that end a message in OpenAI's harmony format."""

TOKENS: Final = (
    *ENDS,
    # Llama 3.
    *("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"),
    # ChatML, as Qwen and many others.
    *("<|im_end|>", "<|endoftext|>"),
    # Llama 2 and Mistral, Gemma.
    *("</s>", "<end_of_turn>", "<eos>"),
    # Cohere, OpenChat, DeepSeek, Granite.
    *("<|end_of_turn_token|>", "<|end_of_turn|>", "<|eot|>", "<｜end▁of▁sentence｜>"),  # noqa: RUF001
    *("<|end_of_role|>", "<|endofturn|>", "<|eos|>"),
)
"""The tokens, in lower case. In an answer their case does not matter."""

_LONGEST: Final = max(map(len, TOKENS))
_STRUCK: Final = "<s>"
"""The tag that ``</s>`` closes in HTML."""


def end_of_words(text: str, begin: int = 0, end: int | None = None) -> int:
    """Return the place in a text from which on it contains control tokens alone.

    White space between and after the tokens goes with them; that before them does not.

    Args:
        text: The text.
        begin: The first place that is returned.
        end: Where the text ends. The end of all of it if None.
    """
    found = end = len(text) if end is None else end
    while True:
        while end > begin and text[end - 1].isspace():
            end -= 1
        tail = text[max(begin, end - _LONGEST) : end].lower()
        last = next((one for one in TOKENS if tail.endswith(one)), None)
        if last is None or (last == "</s>" and _STRUCK in text[:end].lower()):
            return found
        found = end = end - len(last)
