/* How the contenders stand: a table whose rows are headed by a name and its marks, and so the legend of the charts. */

export default {
  render({ model, el }) {
    el.classList.add("ex-standings");
    const title = make("b");
    const words = make("span");
    const head = make("tr");
    const body = make("tbody");
    const table = make("table", {}, make("thead", {}, head), body);
    // The table may scroll sideways, and must then be within reach of the keyboard.
    const frame = make("div", { class: "ex-scroll", tabindex: 0, role: "region", "aria-label": "Standings" }, table);
    el.append(make("p", {}, title, " ", words), frame);
    const cell = (tag, { text, number, tone }, scope) => make(tag, {
      class: [number ? "ex-number" : "", tone ? `ex-${tone}` : ""].filter(Boolean).join(" "), ...(scope ? { scope } : {}),
    }, ...typeset(text));
    const paint = () => {
      el.classList.toggle("ex-stale", model.get("stale"));
      title.textContent = model.get("title");
      table.setAttribute("aria-label", model.get("title"));
      words.textContent = model.get("words");
      head.replaceChildren(...model.get("columns").map((column) => cell("th", column, "col")));
      body.replaceChildren(...model.get("rows").map((row) => {
        const mark = swatch();
        mark.paint(row);
        const name = make("th", { scope: "row" }, mark.svg, row.name);
        return make("tr", {}, name, ...row.cells.map((one) => cell("td", one)));
      }));
    };
    model.on("change:title change:words change:columns change:rows change:stale", paint);
    paint();
    return () => model.off("change:title change:words change:columns change:rows change:stale", paint);
  },
};
