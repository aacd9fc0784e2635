/* Below a sweep: how far it is, what is missing, and the button that closes the card. */

export default {
  render({ model, el }) {
    const progress = make("span", { class: "ex-sweep-progress" });
    const notes = make("p", { class: "ex-hint", role: "status" });
    const close = button("Close", "ex-link", () => {
      const swept = el.closest(".ex-panel")?.querySelector(`[data-field="${model.get("field")}"] .ex-sweep`);
      press(model, "close");
      swept?.focus();
    }, { "aria-label": "Close the sweep" });
    become(el, "ex-sweep-bar");
    el.append(notes, progress, close);
    let seen = 0;
    const show = () => {
      if (model.get("opened") === seen) return;
      seen = model.get("opened");
      const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
      requestAnimationFrame(() => el.parentElement?.scrollIntoView({ block: "nearest", behavior: calm ? "auto" : "smooth" }));
    };
    const ends = [follow(model, "opened", show), follow(model, "progress notes", () => {
      progress.textContent = model.get("progress");
      write(notes, model.get("notes").join(" "));
    })];
    return () => ends.forEach((end) => end());
  },
};
