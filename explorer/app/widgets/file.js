/* A file of a person's own, and the way back to what stands in its place. The kernel decides whether a file will do. */

export default {
  render({ model, el }) {
    const now = make("span", { class: "ex-symbol" });
    const file = make("input", {
      type: "file", accept: model.get("accept"), "aria-label": model.get("about"), ...OWN_KEYS,
      onchange: async () => {
        const [chosen] = file.files;
        if (!chosen) return;
        // One byte too many is enough to be refused in words, and does not choke the line.
        const bytes = await chosen.slice(0, model.get("most") + 1).arrayBuffer();
        model.send(["file", chosen.name], undefined, [bytes]);
        file.value = ""; // the same file may be chosen again
      },
    });
    const back = button(model.get("other"), "ex-link", () => {
      model.send(["other"]);
      file.focus();
    });
    const said = make("p", { class: "ex-hint", role: "status" });
    become(el, "ex-file");
    el.append(make("div", { class: "ex-head" }, make("label", { class: "ex-label" }, model.get("label")), now), file, said,
      back);
    return follow(model, "now said refused own", () => {
      now.textContent = model.get("now");
      said.textContent = model.get("said");
      said.classList.toggle("ex-refusal", model.get("refused"));
      back.hidden = !model.get("own");
    });
  },
};
