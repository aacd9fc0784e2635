/* The line below a sweep's chart: its progress, notes about missing points, and the button that closes the card. */

export function sweep_card(model, el) {
  const progress = make("span", { class: "ex-sweep-progress" });
  const notes = make("p", { class: "ex-hint", role: "status" });
  const close = button("Close", "ex-link", () => {
    const field = el.closest(".ex-panel")?.querySelector(`[data-field="${model.get("field")}"] .ex-sweep`);
    model.act("close");
    field?.focus();
  }, { "aria-label": "Close the sweep" });
  become(el, "ex-sweep-bar");
  el.append(notes, progress, close);
  let openings = 0; // how often a person had opened the card when it last scrolled into view
  return callAll([follow(model, "opened", () => {
    if (model.get("opened") === openings) return;
    openings = model.get("opened");
    requestAnimationFrame(() => bringIntoView(el.parentElement));
  }), follow(model, "progress notes", () => {
    progress.textContent = model.get("progress");
    write(notes, model.get("notes").join(" "));
  })]);
}
