// The list is read again while somebody sees it: all of it is escaped by the server.
const main = document.querySelector("main");
const lost = document.getElementById("lost");
const again = async () => {
  if (!document.hidden) {
    try {
      const answer = await fetch(location.href);
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
      if (answer.ok && fresh.innerHTML !== main.innerHTML) {
        const at = document.activeElement?.getAttribute("href");
        main.innerHTML = fresh.innerHTML;
        if (at) main.querySelector(`[href="${CSS.escape(at)}"]`)?.focus({ preventScroll: true });
      }
      lost.hidden = answer.ok;
    } catch {
      lost.hidden = false;
    }
  }
  setTimeout(again, 2000);
};
setTimeout(again, 2000);
