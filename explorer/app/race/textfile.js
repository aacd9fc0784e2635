/* Which text is learned: a person's own file, or Python's prose again. The kernel decides whether a file will do. */

export default {
  render({ model, el }) {
    el.classList.add("ex-textfile");
    const title = make("label", { class: "ex-label" }, "Text");
    const now = make("span", { class: "ex-symbol" });
    const file = make("input", {
      type: "file", accept: ".txt,.md,.csv,text/*", "aria-label": "Text file of your own, UTF-8", ...OWN_KEYS,
      onchange: async () => {
        const [chosen] = file.files;
        if (!chosen) return;
        // One byte too many is enough to be refused in words, and does not choke the line.
        const bytes = await chosen.slice(0, model.get("most") + 1).arrayBuffer();
        model.send(["text", chosen.name], undefined, [bytes]);
        file.value = ""; // the same file may be chosen again
      },
    });
    const back = button("Use Python's prose", "ex-link", () => {
      model.send(["prose"]);
      file.focus();
    });
    const said = make("p", { class: "ex-hint", role: "status" });
    el.append(make("div", { class: "ex-head" }, title, now), file, said, back);
    const paint = () => {
      now.textContent = model.get("now");
      said.textContent = model.get("said");
      said.classList.toggle("ex-refusal", model.get("refused"));
      back.hidden = !model.get("own");
    };
    model.on("change:now change:said change:refused change:own", paint);
    paint();
    return () => model.off("change:now change:said change:refused change:own", paint);
  },
};
