/* The designs on the charts side by side, in a fold: a table whose first column stays while the others scroll below it. */

/** What stands in a cell: a value, its place and its spread, and theory's value below. */
function content({ text, more, theory, where, severity }, verdict) {
  const value = make("span", { class: severity === "none" ? "ex-none" : "ex-value", "data-severity": severity },
    ...typeset(text));
  const [sign, word] = (verdict && SIGNS[severity]) || [];
  return [
    ...(sign ? [make("span", { class: "ex-sign", role: "img", "aria-label": word, "data-severity": severity }, sign), " "] : []),
    value,
    ...(more ? [" ", make("span", { class: "ex-more" }, `(${more})`)] : []),
    ...(where ? [" ", make("span", { class: "ex-more" }, ...typeset(where))] : []),
    ...(theory ? [" ", make("span", { class: "ex-theory" }, `theory ${theory}`)] : []),
  ];
}

function headOf({ name, when, ...marks }) {
  const mark = swatch();
  mark.paint(marks);
  return make("th", { scope: "col" }, mark.svg, " ", name, ...(when ? [make("span", { class: "ex-more" }, ` ${when}`)] : []));
}

function bodyOf({ title, rows }, width) {
  const verdict = rows.length === 1 && rows[0].label === title;
  const heading = make("tr", {}, make("th", { scope: "rowgroup", colspan: width, class: "ex-group" }, title));
  return make("tbody", {}, ...(verdict ? [] : [heading]), ...rows.map(({ label, symbol, cells }) => make("tr", {},
    make("th", { scope: "row" }, label, " ", make("span", { class: "ex-more" }, ...typeset(symbol))),
    ...cells.map((one) => make("td", verdict ? { class: "ex-words-cell" } : {}, ...content(one, verdict))))));
}

export default {
  render({ model, el }) {
    const table = make("table");
    const summary = make("summary");
    const frame = make("div", { class: "ex-scroll", tabindex: 0, role: "region", "aria-label": "Comparison of the designs" }, table);
    const hint = make("p", { class: "ex-hint" }, "Measured: mean over seeds, or the median over seeds and heads; in brackets the standard error of the mean, the smallest and the largest.");
    become(el, "ex-compare");
    el.append(make("details", {}, summary, frame, hint));
    return follow(model, "columns groups", () => {
      const columns = model.get("columns");
      el.hidden = columns.length === 0;
      summary.textContent = columns.length > 1 ? `Comparison of ${columns.length} designs` : "Comparison";
      table.replaceChildren(
        make("caption", { class: "ex-spoken" }, "Choices that differ between the designs, their values after the last layer, and verdicts"),
        make("thead", {}, make("tr", {}, make("td"), ...columns.map(headOf))),
        ...model.get("groups").map((group) => bodyOf(group, columns.length + 1)));
    });
  },
};
