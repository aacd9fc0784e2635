/* A fold with files to save, a row for each. The text of some files can be shown and copied here first. */

export default {
  render({ model, el }) {
    const rows = model.get("rows").map(({ label, words, shown }, index) => {
      const show = button("Show", "ex-link", () => {
        if (model.get("reading") === index) model.change({ reading: -1 });
        else model.act(["show", index]);
      }, { "aria-label": `Show ${label}`, "aria-expanded": "false" });
      const save = button("Save", "ex-link", () => model.act(["save", index]), { "aria-label": `Save ${label}` });
      const node = make("li", {}, make("b", {}, label), make("span", {}, words), ...(shown ? [show] : []), save);
      return { show, node };
    });
    const field = make("textarea", { readonly: "true", spellcheck: "false", wrap: "off", ...OWN_KEYS });
    const copy = button("Copy", "ex-button", async () => {
      if (!await copyText(field)) document.execCommand("copy"); // of the field's selection
      note.textContent = "Copied.";
    });
    const text = make("div", { class: "ex-home-text" }, field, copy);
    const note = make("p", { class: "ex-hint", role: "status" });
    become(el, "ex-home");
    el.append(make("details", {}, make("summary", {}, "Take it home"),
      make("ul", {}, ...rows.map(({ node }) => node)), text, note));
    return callAll([saveIncomingFiles(model), follow(model, "text reading note refused", () => {
      const open = model.get("reading");
      text.hidden = open < 0;
      field.value = model.get("text");
      field.rows = Math.min(20, field.value.split("\n").length + 1);
      field.setAttribute("aria-label", model.get("rows")[open]?.label ?? "Text");
      rows.forEach(({ show }, index) => {
        show.textContent = index === open ? "Hide" : "Show";
        show.setAttribute("aria-expanded", String(index === open));
      });
      note.textContent = model.get("note");
      note.classList.toggle("ex-refusal", model.get("refused"));
    })]);
  },
};
