/* A row of buttons. They are never removed, only disabled: the focus moves on to one that can be pressed. */

export default {
  render({ model, el }) {
    const links = model.get("links");
    const note = make("p", links ? { class: "ex-hint", role: "status" } : {});
    const buttons = model.get("buttons").map((_, index) => button("", links ? "ex-link" : "ex-button", () => {
      const { verb, enabled } = model.get("buttons")[index];
      if (enabled) press(model, verb);
    }));
    become(el, links ? "ex-saves" : "ex-race-bar", { role: "group", "aria-label": model.get("label") });
    el.append(...buttons, note);
    const ask = (event) => model.get("losing") && event.preventDefault(); // the browser's own question
    window.addEventListener("beforeunload", ask);
    const saved = savesFiles(model);
    const end = follow(model, "buttons note refused", () => {
      const focused = buttons.indexOf(document.activeElement);
      model.get("buttons").forEach(({ verb, label, enabled, primary, title }, index) => {
        Object.assign(buttons[index], { textContent: label, title, disabled: !enabled });
        buttons[index].dataset.verb = verb;
        buttons[index].classList.toggle("ex-primary", primary && enabled);
      });
      if (focused >= 0 && buttons[focused].disabled) buttons.find((node) => !node.disabled)?.focus();
      note.textContent = model.get("note");
      note.classList.toggle("ex-refusal", model.get("refused"));
    });
    return () => {
      end();
      window.removeEventListener("beforeunload", ask);
      saved();
    };
  },
};
