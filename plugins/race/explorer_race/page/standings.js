/* The contenders' results in a table. The names and marks at the head of its rows are the legend of the charts. */

/** A row with the text that a contender wrote. The text is from outside and is shown as text only. */
const writtenRow = ({ name, given, written }, columns) => make("tr", { class: "ex-written" },
  make("td", { colspan: columns, "aria-label": `Written by ${name}` },
    make("span", {}, given), make("q", {}, written)));

/** The rows of a contender: the results, and the text that it wrote, if any. */
function contenderRows(row, columns) {
  const cells = row.cells.map((text, index) => {
    const { number, out } = columns[index + 1];
    return make("td", { class: number ? "ex-number" : row.out && out ? "ex-out" : "" }, ...typeset(text));
  });
  return [
    make("tr", {}, make("th", { scope: "row" }, swatch(row).svg, row.name), ...cells),
    ...(row.written ? [writtenRow(row, columns.length)] : []),
  ];
}

export function standings(model, el) {
  const title = make("b");
  const words = make("span");
  const head = make("tr");
  const body = make("tbody");
  const table = make("table", {}, make("thead", {}, head), body);
  // The table may scroll sideways: with a tabindex, the keyboard can scroll it.
  const frame = make("div", { class: "ex-scroll", tabindex: 0, role: "region", "aria-label": "Standings" }, table);
  become(el, "ex-standings");
  el.append(make("p", {}, title, " ", words), frame);
  return follow(model, "title words columns rows stale", () => {
    const columns = model.get("columns");
    el.classList.toggle("ex-stale", model.get("stale"));
    title.textContent = model.get("title");
    table.setAttribute("aria-label", model.get("title"));
    words.textContent = model.get("words");
    head.replaceChildren(...columns.map(({ text, number }) => (
      make("th", { scope: "col", class: number ? "ex-number" : "" }, ...typeset(text)))));
    body.replaceChildren(...model.get("rows").flatMap((row) => contenderRows(row, columns)));
  });
}
