/* A fold with files, a row each: some are read here before they are saved. */

/** Copies what a field shows; where the browser has no clipboard for this page, by the field's own selection. */
async function copied(field) {
  field.select();
  try {
    await navigator.clipboard.writeText(field.value);
  } catch {
    document.execCommand("copy");
  }
}

export default {
  render({ model, el }) {
    const rows = model.get("rows").map(({ label, words, shown }, place) => {
      const show = button("Show", "ex-link", () => {
        if (model.get("reading") === place) close();
        else press(model, ["show", place]);
      }, { "aria-label": `Show ${label}`, "aria-expanded": "false" });
      const save = button("Save", "ex-link", () => press(model, ["save", place]), { "aria-label": `Save ${label}` });
      return { show, node: make("li", {}, make("b", {}, label), make("span", {}, words), ...(shown ? [show] : []), save) };
    });
    const field = make("textarea", { readonly: "true", spellcheck: "false", wrap: "off", ...OWN_KEYS });
    const copy = button("Copy", "ex-button", async () => {
      await copied(field);
      note.textContent = "Copied.";
    });
    const text = make("div", { class: "ex-home-text" }, field, copy);
    const note = make("p", { class: "ex-hint", role: "status" });
    const close = () => {
      model.set("reading", -1);
      sendChange(model);
    };
    become(el, "ex-home");
    el.append(make("details", {}, make("summary", {}, "Take it home"),
      make("ul", {}, ...rows.map(({ node }) => node)), text, note));
    const ends = [savesFiles(model), follow(model, "text reading note refused", () => {
      const open = model.get("reading");
      text.hidden = open < 0;
      field.value = model.get("text");
      field.rows = Math.min(20, field.value.split("\n").length + 1);
      field.setAttribute("aria-label", model.get("rows")[open]?.label ?? "Text");
      rows.forEach(({ show }, place) => {
        show.textContent = place === open ? "Hide" : "Show";
        show.setAttribute("aria-expanded", String(place === open));
      });
      note.textContent = model.get("note");
      note.classList.toggle("ex-refusal", model.get("refused"));
    })];
    return () => ends.forEach((end) => end());
  },
};
