// The list is loaded again while the page is visible. The server has escaped all text in it.
const main = document.querySelector("main");
const lost = document.getElementById("lost");
const reloadList = async () => {
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
  setTimeout(reloadList, 2000);
};
setTimeout(reloadList, 2000);
