// The changes of the session. The server has escaped all text in them.
const live = document.getElementById("live");
if (live && !("done" in live.dataset)) {
  talk.setAttribute("role", "log");
  const source = new EventSource(live.dataset.events);
  const show = (name, part) => {
    const element = document.getElementById(name);
    // A form that someone fills in is replaced only if its question changes.
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
    const news = JSON.parse(event.data);
    if (news.reload || news.problem) {
      source.close();
      if (news.problem) document.getElementById("standing").append(make("problem", news.problem));
      else location.reload();
      return;
    }
    const atEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 120;
    if (news.lines) {
      talk.querySelector(":scope > .empty")?.remove();
      talk.insertAdjacentHTML("beforeend", news.lines);
      if (document.getElementById("side")?.checked) {
        document.getElementById("side").dispatchEvent(new Event("change"));
      }
    }
    for (const [name, part] of Object.entries(news.parts)) show(name, part);
    if (atEnd && news.lines) scrollTo(0, document.documentElement.scrollHeight);
    if (news.done) source.close();
  };
}
