/* The buttons of the race. They are never removed, only disabled: the focus moves on to one that can be pressed. */

export default {
  render({ model, el }) {
    el.classList.add("ex-race-bar");
    el.setAttribute("role", "group");
    el.setAttribute("aria-label", "The race");
    const note = make("p");
    const buttons = ["first", "second", "third"].map((_, index) => button("", "ex-button", () => {
      const { verb, enabled } = model.get("buttons")[index];
      if (enabled) press(model, verb);
    }));
    el.append(...buttons, note);
    const paint = () => {
      const focused = buttons.indexOf(document.activeElement);
      model.get("buttons").forEach(({ verb, label, enabled, primary }, index) => {
        buttons[index].textContent = label;
        buttons[index].dataset.verb = verb;
        buttons[index].disabled = !enabled;
        buttons[index].classList.toggle("ex-primary", primary && enabled);
      });
      if (focused >= 0 && buttons[focused].disabled) buttons.find((node) => !node.disabled)?.focus();
      note.textContent = model.get("note");
    };
    const ask = (event) => model.get("losing") && event.preventDefault(); // the browser's own question
    window.addEventListener("beforeunload", ask);
    model.on("change:buttons change:note", paint);
    paint();
    return () => {
      window.removeEventListener("beforeunload", ask);
      model.off("change:buttons change:note", paint);
    };
  },
};
