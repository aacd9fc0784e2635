/* A fold with a table that compares the designs on the charts. Its first column stays while the others scroll. */

const HINT = "Measured: mean over seeds, or the median over seeds and heads; "
  + "in brackets the standard error of the mean, the smallest and the largest.";
const CAPTION = "Choices that differ between the designs, their values after the last layer, and verdicts";

/** The nodes of a cell: the sign of a verdict, the value with its spread and its place, and theory's value. */
function cellNodes({ text, more, theory, where, severity }, isVerdict) {
  const value = make("span", { class: severity === "none" ? "ex-none" : "ex-value", "data-severity": severity },
    ...typeset(text));
  const [sign, word] = (isVerdict && SIGNS[severity]) || [];
  const signAttributes = { class: "ex-sign", role: "img", "aria-label": word, "data-severity": severity };
  return [
    ...(sign ? [make("span", signAttributes, sign), " "] : []),
    value,
    ...(more ? [" ", make("span", { class: "ex-more" }, `(${more})`)] : []),
    ...(where ? [" ", make("span", { class: "ex-more" }, ...typeset(where))] : []),
    ...(theory ? [" ", make("span", { class: "ex-theory" }, `theory ${theory}`)] : []),
  ];
}

function columnHead({ name, when, ...marks }) {
  const time = when ? [make("span", { class: "ex-more" }, ` ${when}`)] : [];
  return make("th", { scope: "col" }, swatch(marks).svg, " ", name, ...time);
}

/** A group of rows below its title. The verdict is a group of one row with the same title. */
function groupBody({ title, rows }, width) {
  const isVerdict = rows.length === 1 && rows[0].label === title;
  const heading = make("tr", {}, make("th", { scope: "rowgroup", colspan: width, class: "ex-group" }, title));
  return make("tbody", {}, ...(isVerdict ? [] : [heading]), ...rows.map(({ label, symbol, cells }) => make("tr", {},
    make("th", { scope: "row" }, label, " ", make("span", { class: "ex-more" }, ...typeset(symbol))),
    ...cells.map((cell) => make("td", isVerdict ? { class: "ex-words-cell" } : {}, ...cellNodes(cell, isVerdict))))));
}

export function compare(model, el) {
  const table = make("table");
  const summary = make("summary");
  const frame = make("div", {
    class: "ex-scroll", tabindex: 0, role: "region", "aria-label": "Comparison of the designs",
  }, table);
  become(el, "ex-compare");
  el.append(make("details", {}, summary, frame, make("p", { class: "ex-hint" }, HINT)));
  return follow(model, "columns groups", () => {
    const columns = model.get("columns");
    el.hidden = columns.length === 0;
    summary.textContent = columns.length > 1 ? `Comparison of ${columns.length} designs` : "Comparison";
    table.replaceChildren(
      make("caption", { class: "ex-spoken" }, CAPTION),
      make("thead", {}, make("tr", {}, make("td"), ...columns.map(columnHead))),
      ...model.get("groups").map((group) => groupBody(group, columns.length + 1)));
  });
}
