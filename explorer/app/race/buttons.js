/* A row of buttons and a note. Buttons are only disabled, never removed; the focus then moves to the next. */

export default {
  render({ model, el }) {
    const links = model.get("links");
    const note = make("p", links ? { class: "ex-hint", role: "status" } : {});
    const buttons = model.get("buttons").map((_, index) => button("", links ? "ex-link" : "ex-button", () => {
      const { verb, enabled } = model.get("buttons")[index];
      if (enabled) model.act(verb);
    }));
    become(el, links ? "ex-saves" : "ex-race-bar", { role: "group", "aria-label": model.get("label") });
    el.append(...buttons, note);
    // The browser then asks whether to leave the page and lose an unsaved race.
    const confirmLeaving = (event) => model.get("losing") && event.preventDefault();
    const stops = [saveIncomingFiles(model), listen(window, "beforeunload", confirmLeaving)];
    return callAll([...stops, follow(model, "buttons note refused", () => {
      const focused = buttons.indexOf(document.activeElement);
      model.get("buttons").forEach(({ verb, label, enabled, primary, title }, index) => {
        Object.assign(buttons[index], { textContent: label, title, disabled: !enabled });
        buttons[index].dataset.verb = verb;
        buttons[index].classList.toggle("ex-primary", primary && enabled);
      });
      if (focused >= 0 && buttons[focused].disabled) buttons.find((node) => !node.disabled)?.focus();
      note.textContent = model.get("note");
      note.classList.toggle("ex-refusal", model.get("refused"));
    })]);
  },
};
