# Run a sale that ends when the buyer says DEAL, or after twelve messages.
from duologue import Conversation, DoneToken, MaxMessages, Speaker, converse

buyer = Speaker("Buyer", task="Pay 4,000 at most. Once you agree, say DEAL and nothing else.")
seller = Speaker("Seller", task="Take 3,500 at least.")
sale = Conversation(
    "Agree on a price for the boat.",
    [buyer, seller],
    end_chat=DoneToken("DEAL", by="Buyer") | MaxMessages(12),
)
result = converse(sale)
print(result)
print("Sold." if result.stop_reason == "done_token" else "No deal.")
