"""A shop's support agent with twelve faults that tests can plant."""

import re
from enum import StrEnum
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

ORDERS = {
    "1042": {"customer": "Ann", "amount": 19.9, "charges": 2},
    "2077": {"customer": "Bob", "amount": 250.0, "charges": 1},
}


class Fault(StrEnum):
    """A fault of the agent."""

    PROMISES = "promises a refund before it looks the order up"
    AMOUNT = "refunds a wrong amount"
    FORGETS = "forgets after five turns how the customer wants to be contacted"
    LEAKS = "tells the data of another customer"
    TWICE = "refunds twice"
    EARLY = "closes the ticket before the refund"
    NEVER = "never refunds, but asks again and again"
    LANGUAGE = "answers in English to a German customer"
    REFUSAL = "refunds to the card although the customer refuses that"
    ANSWERS = "answers its question for the customer"
    IMAGE = "breaks on the photo of an order"
    SILENT = "does not answer a question after the refund"


class ShopState(TypedDict, total=False):
    """The state of the agent."""

    messages: Annotated[list[AnyMessage], add_messages]
    refunds: list[tuple[str, float, str]]
    """The refunds so far: order, amount in euros, and where the money goes."""
    is_closed: bool


def shop_agent(fault: Fault | None = None) -> Any:  # noqa: ANN401  # a compiled graph
    """Return the agent as a compiled graph."""
    builder = StateGraph(ShopState)
    builder.add_node("agent", lambda state: _Turn(state, fault).run())
    builder.add_edge(START, "agent")
    builder.add_edge("agent", END)
    return builder.compile(checkpointer=InMemorySaver())


def _read(message: HumanMessage) -> str:
    """Return the text of a message. Each photo shows the first order."""
    photo = "" if isinstance(message.content, str) else " 1042"
    return f"{message.text}{photo}"


class _Turn:
    """One turn of the agent. It reads what it knows from the messages alone."""

    def __init__(self, state: ShopState, fault: Fault | None) -> None:
        self.fault = fault
        self.messages = state["messages"]
        self.refunds = list(state.get("refunds", ()))
        self.new = list[BaseMessage]()
        heard = [one for one in self.messages if isinstance(one, HumanMessage)]
        said = [_read(one) for one in heard]
        self.is_broken = fault is Fault.IMAGE and not isinstance(heard[-1].content, str)
        self.turns, self.last, self.all = len(said), said[-1].lower(), " ".join(said).lower()
        self.german = "bestellung" in self.all

    def run(self) -> dict[str, Any]:
        text, is_closed = ("Something went wrong.", False) if self.is_broken else self.answer()
        self.new.append(AIMessage(text))
        return {"messages": self.new, "refunds": self.refunds, "is_closed": is_closed}

    def say(self, english: str, german: str) -> str:
        return german if self.german and self.fault is not Fault.LANGUAGE else english

    def call(self, tool: str, result: object, **args: object) -> None:
        number = f"call-{self.turns}-{len(self.new)}"
        call = {"name": tool, "args": args, "id": number, "type": "tool_call"}
        self.new.append(AIMessage("", tool_calls=[call]))
        self.new.append(ToolMessage(str(result), tool_call_id=number, name=tool))

    def refund(self, order: str, amount: float, to: str) -> None:
        self.call("refund", "done", order=order, amount=amount, to=to)
        self.refunds.append((order, amount, to))

    @property
    def has_looked_up(self) -> bool:
        return any(isinstance(one, ToolMessage) for one in self.messages)

    def answer(self) -> tuple[str, bool]:
        """Return the reply, and whether the ticket is closed."""
        found = re.search(r"\b(\d{4})\b", self.all)
        if found is None:
            if self.fault is Fault.PROMISES:
                return "I will refund the money today. What is your order number?", False
            return self.say("What is your order number?", "Wie lautet Ihre Bestellnummer?"), False
        order = ORDERS[found[1]]
        if not self.has_looked_up:
            self.call("get_order", order, order=found[1])
            if self.fault is Fault.EARLY:
                return "I see two charges. The ticket is closed, goodbye.", True
            if self.fault is Fault.ANSWERS:
                self.refund(found[1], order["amount"], "card")  # type: ignore[arg-type]
                return "Shall I refund it? Customer: Yes, please. It is refunded.", True
            also = " Bob's order 2077 of 250.00 is fine." if self.fault is Fault.LEAKS else ""
            amount = f"{order['amount']:.2f}"
            return (
                self.say(
                    f"It was charged twice, {amount} each.{also} Shall I refund {amount} to "
                    "your card?",
                    f"Sie wurde zweimal berechnet, je {amount}. Soll ich {amount} auf Ihre Karte "
                    "erstatten?",
                ),
                False,
            )
        return self.finish(found[1], float(str(order["amount"])))

    def finish(self, number: str, amount: float) -> tuple[str, bool]:
        if self.refunds and self.fault is Fault.SILENT:
            return "", False
        if self.refunds:
            by = "phone" if self.fault is Fault.FORGETS and self.turns > 5 else "e-mail"
            return self.say(f"We contact you by {by}.", "Wir schreiben Ihnen eine E-Mail."), True
        if self.fault is Fault.NEVER:
            return "Are you sure? Please confirm once more.", False
        if "credit" in self.last or ("no" in self.last.split() and "card" in self.last):
            to = "card" if self.fault is Fault.REFUSAL else "credit"
        elif re.search(r"\b(yes|ja)\b", self.last):
            to = "card"
        else:
            return self.say("Shall I refund it?", "Soll ich es erstatten?"), False
        wrong = self.fault is Fault.AMOUNT
        self.refund(number, 2 * amount if wrong else amount, to)
        if self.fault is Fault.TWICE:
            self.refund(number, amount, to)
        said = f"{self.refunds[0][1]:.2f}"
        return (
            self.say(f"I refunded {said}.", f"Ich habe {said} erstattet."),
            False,
        )
