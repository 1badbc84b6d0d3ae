"""Hostile texts in every place of a session that a page shows. No tests here."""

from collections.abc import Iterator, Sequence
from typing import Final

from langchain_core.messages import AnyMessage, InvalidToolCall
from langchain_core.messages.tool import ToolCall

from duologue.graphs import Conversation
from duologue.graphs.batch.report.report import render as render_report
from duologue.graphs.session.stored_session import StoredSession
from duologue.graphs.show.page import PageSession, memory_page_of, page_of
from duologue.graphs.show.page_data import Spent
from duologue.graphs.show.render import render
from support.batches import batch_row, cell_row, report_of
from support.log import make_line, make_tool_line, read_metadata
from support.stores import CellRow

ALLOWED: Final = {
    *("html", "head", "meta", "title", "style", "script", "body", "header", "main", "footer"),
    *("section", "article", "figure", "figcaption", "fieldset", "legend", "label", "input"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "p", "div", "span", "bdi", "a", "button", "br", "hr"),
    *("ul", "ol", "li", "dl", "dt", "dd", "blockquote", "pre", "code", "em", "strong", "s"),
    *("table", "thead", "tbody", "tr", "th", "td", "details", "summary"),
    *("svg", "g", "path", "rect", "circle"),
}
"""Elements that a page may contain. The title inside a picture has the same name."""

_RUN: Final = "window.ran=1"

HOSTILE: Final = [
    f"<script>{_RUN}</script>",
    f"</script><script>{_RUN}</script>",
    f"</style><script>{_RUN}</script>",
    f"</title><svg onload={_RUN}>",
    f'"><img src=x onerror="{_RUN}">',
    f"' onmouseover='{_RUN}' x='",
    f"<svg><script>{_RUN}</script></svg>",
    f"<iframe srcdoc='<script>parent.{_RUN}</script>'></iframe>",
    f"<a href=javascript:{_RUN}>x</a>",
    f"[x](javascript:{_RUN})",
    f"[x](JaVaScRiPt&colon;{_RUN})",
    f"<javascript:{_RUN}>",
    "[x](data:text/html;base64,PHNjcmlwdD53aW5kb3cucmFuPTE8L3NjcmlwdD4=)",
    f"![x](x){{onerror={_RUN}}}",
    f'![x](javascript:{_RUN} "x\\" onerror={_RUN}")',
    f'[x](https://a.example "x\\" onclick={_RUN}")',
    f'[x](https://a.example/"onclick={_RUN})',
    f'<https://a.example/"onclick={_RUN}>',
    f'```"><script>{_RUN}</script>\n</code></pre><script>{_RUN}</script>\n' + "x\n" * 12 + "```",
    f"`</code><script>{_RUN}</script>`",
    f"| a | <script>{_RUN}</script> |\n|---|---|\n| <img src=x onerror={_RUN}> | b |",
    f"<!-- --><script>{_RUN}</script><!--",
    f"<![CDATA[<script>{_RUN}</script>]]>",
    f"&lt;script&gt;{_RUN}&lt;/script&gt;",
    f"&#60;script&#62;{_RUN}&#60;/script&#62;",
    f"{{{{ ''.__class__ }}}} {{% raw %}}<script>{_RUN}</script>",
    f"<details open ontoggle={_RUN}>",
    f"<style>@import 'http://a.example'; *{{background:url(javascript:{_RUN})}}</style>",
    "<meta http-equiv=refresh content='0;url=data:text/html,x'><base href=//a.example>",
    f"<math><mi xlink:href=javascript:{_RUN}>x",
    f"\x01<scr\x01ipt>{_RUN}</scr\x01ipt>\x1b\x85\u2028\u202e\ufffe",
    f"+ADw-script+AD4-{_RUN}+ADw-/script+AD4-",
    f'#"><script>{_RUN}</script>',
    "> " * 50 + "[" * 50 + "*" * 50 + "`" * 49,
]
"""Each would set `window.ran`, or fetch something, if it were read as anything but text."""


def hostile_session(texts: Sequence[str]) -> PageSession:
    """Return a session with these messages, and with some of the texts in all other fields."""
    text = texts[0]
    line = " ".join("".join(one if one.isprintable() else " " for one in text).split())[:70] or "x"
    conversation = Conversation.model_validate(
        {
            "task": text.strip() or "Plan",
            "speakers": [
                {"name": "Ann"},
                {"name": f"{line} B", "system_prompt": text.strip() or "B"},
            ],
        }
    )
    names = conversation.names
    log: list[AnyMessage] = []
    for number, one in enumerate(texts):
        about = {"kind": "speech", "speaker": names[number % 2], "thought": {"text": one}}
        log.append(make_line(len(log), one, read_metadata(about | {"parsed": {one: one}})))
    for text in texts[: len(HOSTILE)]:
        call = f"call {len(log)}"
        calls = [ToolCall(name=text, args={text: text}, id=call)]
        broken = [
            InvalidToolCall(type="invalid_tool_call", name=text, args=text, id=text, error="")
        ]
        called = read_metadata({"kind": "tool_calls", "speaker": names[1]})
        log.append(make_line(len(log), text, called, tool_calls=calls, invalid_tool_calls=broken))
        log.append(make_tool_line(len(log), text, speaker=names[1], call_id=call))
        for more in (
            {"kind": "draft", "speaker": names[0], "problem": text},
            {"kind": "draft", "problem": text},
            {"kind": "instruction", "audience": [names[0]]},
            {"kind": "reflection", "verdict": _verdict(names[1], text)},
            {"kind": "reflection", "verdict": _verdict(names[1], text) | _findings(text)},
            {"kind": "speaker_choice", "to": names[1], "problem": text},
        ):
            log.append(make_line(len(log), text, read_metadata(more)))
    # An id in the form of another server's.
    log[-1].additional_kwargs.pop("duologue_place")
    text = log[-1].id = texts[0]
    prompts = {names[1]: [make_line(0, text, read_metadata({"kind": "instruction"}))]}
    steps = [Spent(who=who, is_new_turn=True, calls=1, seconds=1) for who in (text, names[1])]
    return PageSession(
        id="s",
        title=text,
        conversation=conversation,
        log=log,
        task=text,
        prompts=prompts,
        steps=steps,
    )


def hostile_pages(texts: Sequence[str]) -> Iterator[str]:
    """Yield the page of a session with these texts everywhere, and that of a speaker's memory."""
    session = hostile_session(texts)
    yield render(page_of(session))
    yield render(memory_page_of(session, "Ann"))


def hostile_result(texts: Sequence[str]) -> StoredSession:
    """Return a session with these texts everywhere, as it is shown in a notebook."""
    one = hostile_session(texts)
    return StoredSession(
        one.id, one.conversation, [*one.log], one.task, one.outcome, tuple(one.pending)
    )


def hostile_report() -> str:
    """Return the report of a batch with hostile texts in all places for foreign text."""
    rows = list[CellRow]()
    many = 2 * len(HOSTILE)
    for number in range(many):
        text, has_failed = HOSTILE[number // 2], number % 5 == 0
        rows.append(
            cell_row(
                number + 1,
                "grid",
                trial=number % 2 + 1,
                varied={f"labels.{HOSTILE[0]}": text, "labels.long": "word" * (20 + number)},
                status="failed" if has_failed else "finished",
                reason=None if has_failed else text,
                error=text,
                messages=number,
                cost=0.01 * number,
                scores={} if has_failed else {HOSTILE[1]: float(number % 3 == 0), HOSTILE[2]: 0.3},
            )
        )
    batch = batch_row("grid", title=HOSTILE[3], cells=many, stopped=HOSTILE[4])
    return render_report(report_of(batch, rows, rows[::2], is_running=True, folder=HOSTILE[0]))


def _verdict(speaker: str, text: str) -> dict[str, object]:
    return {"speaker": speaker, "complete": False, "objectives_left": [text]}


def _findings(text: str) -> dict[str, object]:
    reasons = {text: {"text": text, "message": 1}}
    return {"findings": {text: "not_met"}, "reasons": reasons}
