"use strict";
// Tables sort by a click, or Enter, on a header: numbers as numbers, empty cells always last.
for (const table of document.querySelectorAll("table.sortable")) {
  const keys = table.tHead.rows[table.tHead.rows.length - 1];
  Array.from(keys.cells).forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => {
      const ascending = header.getAttribute("aria-sort") === "descending" || !isNumeric(table, column)
        ? header.getAttribute("aria-sort") !== "ascending" : false;
      for (const other of keys.cells) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      sort(table.tBodies[0], column, ascending);
    });
  });
}
function keyOf(row, column) { return row.cells[column] ? row.cells[column].dataset.sort || "" : ""; }
function isNumeric(table, column) {
  const keys = Array.from(table.tBodies[0].rows, row => keyOf(row, column)).filter(key => key !== "");
  return keys.length > 0 && keys.every(key => !Number.isNaN(Number(key)));
}
function sort(body, column, ascending) {
  const numeric = isNumeric(body.parentElement, column);
  const rows = Array.from(body.rows);
  rows.sort((a, b) => {
    const x = keyOf(a, column), y = keyOf(b, column);
    if (x === "" || y === "") return (x === "") - (y === "");
    const order = numeric ? Number(x) - Number(y) : x.localeCompare(y, undefined, {numeric: true});
    return ascending ? order : -order;
  });
  for (const row of rows) row.classList.remove("rule");
  body.append(...rows);
}
// Figures open in a dialog; Escape closes it, and the focus returns to the figure by itself.
const dialog = document.getElementById("zoomed");
for (const button of document.querySelectorAll("button.zoom")) {
  button.addEventListener("click", () => {
    const image = button.querySelector("img");
    const large = dialog.querySelector("img");
    large.src = image.src;
    large.alt = image.alt;
    const link = document.getElementById("download");
    link.href = image.src;
    const vector = image.src.startsWith("data:image/svg");
    link.download = button.closest("figure").id + (vector ? ".svg" : ".png");
    link.textContent = vector ? "Save as SVG" : "Save as PNG";
    dialog.showModal();
  });
}
dialog.addEventListener("click", event => { if (event.target === dialog) dialog.close(); });
// Printing opens what is folded, but for long tables: those stay on the screen and in their files.
window.addEventListener("beforeprint", () => {
  for (const fold of document.querySelectorAll("details")) fold.open = fold.open || !fold.querySelector("table");
});
