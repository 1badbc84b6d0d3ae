"use strict";
const talk = document.querySelector(".talk");
const all = document.getElementById("as-all");
for (const part of document.querySelectorAll(".js")) part.hidden = false;

// A link to a line that this view does not show switches to the transcript.
addEventListener("hashchange", () => {
  const line = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (all && line && line.classList.contains("m") && !line.getClientRects().length) {
    all.checked = true;
    line.scrollIntoView();
  }
});

// A change of view keeps the line in sight.
const bar = document.querySelector(".bar");
let read = null;
const readNow = () => {
  const under = bar.getBoundingClientRect().bottom;
  read = null;
  if (talk.getBoundingClientRect().top > under) return;
  for (let y = under + 8; !read && y < innerHeight; y += 16) {
    read = document.elementFromPoint(innerWidth / 2, y)?.closest(".m");
  }
};
for (const kind of ["pointerdown", "keydown"]) bar?.addEventListener(kind, readNow);

const folds = document.getElementById("folds");
folds?.addEventListener("click", () => {
  const open = folds.getAttribute("aria-pressed") === "false";
  for (const one of talk.querySelectorAll("details")) one.open = open;
  folds.setAttribute("aria-pressed", open);
  folds.textContent = open ? "Close all" : "Open all";
});

// The columns of the view side by side, made on first use.
const make = (kind, text) => {
  const element = document.createElement("div");
  element.className = kind;
  if (text) element.textContent = text;
  return element;
};
const cell = (line, number) => {
  const is = (role) => line.classList.contains(role + number);
  if (is("a") || is("t") || line.dataset.by === String(number)) {
    const own = make("cell own");
    for (const part of line.children) {
      if (!part.classList.contains("b") && !part.classList.contains("i")) own.append(part.cloneNode(true));
    }
    if (is("a") || is("t")) own.prepend(make("role", is("a") ? "assistant" : "tool"));
    return own;
  }
  if (!is("u")) return make("cell no", "not received");
  const heard = make("cell");
  heard.append(make("role", "user"));
  for (const part of line.querySelectorAll(`:scope > .h${number}`)) heard.append(part.cloneNode(true));
  const shown = line.querySelector(":scope > .s");
  if (shown && !is("x")) heard.append(shown.cloneNode(true));
  return heard;
};
document.getElementById("side")?.addEventListener("change", () => {
  for (const line of talk.querySelectorAll(".m:not(.note, :has(> .cells))")) {
    const cells = make("cells");
    for (let number = 0; number < Number(talk.dataset.many); number++) cells.append(cell(line, number));
    line.append(cells);
  }
});

bar?.addEventListener("change", () => {
  while (read && !read.getClientRects().length) read = read.nextElementSibling;
  read?.scrollIntoView();
});
