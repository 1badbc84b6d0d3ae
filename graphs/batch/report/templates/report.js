"use strict";
// A click on a heading of the table of cells sorts the rows by that column; another click reverses
// them. Cells without a number, such as a missing score, come last.
const table = document.querySelector(".lines");
const number = (text) => (/^-?[\d.,]+(e[+-]?\d+)?$/.test(text) ? Number(text.replaceAll(",", "")) : NaN);
for (const [column, head] of [...(table?.tHead.rows[0].cells ?? [])].entries()) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...head.childNodes);
  head.append(button);
  button.addEventListener("click", () => {
    const down = head.ariaSort === "ascending";
    for (const other of table.tHead.rows[0].cells) other.ariaSort = null;
    head.ariaSort = down ? "descending" : "ascending";
    const rows = [...table.tBodies[0].rows].map((row) => [row.cells[column].textContent, row]);
    const all = rows.every(([text]) => text === "–" || !Number.isNaN(number(text)));
    rows.sort(([one], [other]) => {
      const [a, b] = all ? [number(one), number(other)] : [one, other];
      if (all && (Number.isNaN(a) || Number.isNaN(b))) return Number.isNaN(a) - Number.isNaN(b);
      return (down ? -1 : 1) * (all ? a - b : a.localeCompare(b));
    });
    table.tBodies[0].append(...rows.map(([, row]) => row));
  });
}
// On a narrow page, a table becomes a list of rows. Its cells keep their roles and names.
for (const wide of document.querySelectorAll(".wide > table")) {
  const names = [...wide.tHead.rows[0].cells].map((head) => head.textContent);
  wide.classList.add("stacks");
  wide.role = "table";
  for (const row of wide.tBodies[0].rows) {
    row.role = "row";
    for (const [column, cell] of [...row.cells].entries()) {
      cell.role = column ? "cell" : "rowheader";
      cell.dataset.head = names[column];
    }
  }
}
