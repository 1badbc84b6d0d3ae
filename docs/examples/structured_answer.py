# Ask one agent for an answer that fits a pydantic model.
from pydantic import BaseModel

from duologue import Speaker, ask


class Menu(BaseModel):
    starter: str
    main: str
    minutes: int


chef = Speaker("Chef", "You plan meals for busy people.")
result = ask(chef, "Plan a dinner for four.", schema=Menu)
menu = Menu.model_validate(result.output)
print(f"{menu.starter}, then {menu.main}: ready in {menu.minutes} minutes.")
