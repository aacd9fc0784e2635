/* The contenders' results: a table whose rows are headed by a name and its marks, and so the legend of the charts. */

/** What a contender wrote: from outside, and so a text. */
const line = ({ name, given, written }, columns) => make("tr", { class: "ex-written" },
  make("td", { colspan: columns, "aria-label": `Written by ${name}` }, make("span", {}, given), make("q", {}, written)));

export default {
  render({ model, el }) {
    const title = make("b");
    const words = make("span");
    const head = make("tr");
    const body = make("tbody");
    const table = make("table", {}, make("thead", {}, head), body);
    // The table may scroll sideways, and must then be within reach of the keyboard.
    const frame = make("div", { class: "ex-scroll", tabindex: 0, role: "region", "aria-label": "Standings" }, table);
    become(el, "ex-standings");
    el.append(make("p", {}, title, " ", words), frame);
    return follow(model, "title words columns rows stale", () => {
      const columns = model.get("columns");
      const cells = ({ cells: texts, out }) => texts.map((text, index) => make("td", {
        class: columns[index + 1].number ? "ex-number" : out && columns[index + 1].out ? "ex-out" : "",
      }, ...typeset(text)));
      el.classList.toggle("ex-stale", model.get("stale"));
      title.textContent = model.get("title");
      table.setAttribute("aria-label", model.get("title"));
      words.textContent = model.get("words");
      head.replaceChildren(...columns.map(({ text, number }) => (
        make("th", { scope: "col", class: number ? "ex-number" : "" }, ...typeset(text)))));
      body.replaceChildren(...model.get("rows").flatMap((row) => {
        const mark = swatch();
        mark.paint(row);
        const wrote = row.written ? [line(row, columns.length)] : [];
        return [make("tr", {}, make("th", { scope: "row" }, mark.svg, row.name), ...cells(row)), ...wrote];
      }));
    });
  },
};
