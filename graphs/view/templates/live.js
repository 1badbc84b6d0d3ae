// What is new in the session, as the server tells it: all of it is escaped there.
const live = document.getElementById("live");
if (live && !("done" in live.dataset)) {
  talk.setAttribute("role", "log");
  const source = new EventSource(live.dataset.events);
  const show = (name, part) => {
    const element = document.getElementById(name);
    // What somebody writes in stays as it is while nothing else is asked.
    if (!element || element.dataset.is === part.is) return;
    const open = [...element.querySelectorAll("details")].map((one) => one.open);
    element.dataset.is = part.is;
    element.innerHTML = part.html;
    element.querySelectorAll("details").forEach((one, at) => { if (at in open) one.open = open[at]; });
  };
  const lost = document.getElementById("lost");
  source.onopen = () => { lost.hidden = true; };
  source.onerror = () => { lost.hidden = false; };
  source.onmessage = (event) => {
    const told = JSON.parse(event.data);
    if (told.reload || told.problem) {
      source.close();
      if (told.problem) document.getElementById("standing").append(made("problem", told.problem));
      else location.reload();
      return;
    }
    const atEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 120;
    if (told.lines) {
      talk.querySelector(":scope > .empty")?.remove();
      talk.insertAdjacentHTML("beforeend", told.lines);
      if (document.getElementById("side")?.checked) {
        document.getElementById("side").dispatchEvent(new Event("change"));
      }
    }
    for (const [name, part] of Object.entries(told.parts)) show(name, part);
    if (atEnd && told.lines) scrollTo(0, document.documentElement.scrollHeight);
    if (told.done) source.close();
  };
}
