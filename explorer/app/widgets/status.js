/* The status line. Only `text` is in the live region, because a screen reader would read out progress without end.

   While the kernel is silent the line says so, and all charts show as stale: the controls may be ahead of them. */

const SILENCE_TEXTS = ["", "Waiting for Python", "Python does not answer"];

export function status(model, el) {
  become(el, "ex-status");
  const text = make("span", { class: "ex-status-text", role: "status", "aria-live": "polite" });
  const detail = make("span", { class: "ex-status-detail" });
  const progress = make("progress", { "aria-label": "Progress" });
  const buttons = {
    offer: button("", "ex-button ex-primary", () => model.act("offer")),
    action: button("", "ex-button", () => model.act("action")),
  };
  const sign = make("span", { class: "ex-mark", "aria-hidden": "true" });
  el.append(sign, text, detail, progress, ...Object.values(buttons));
  const paint = () => {
    const { silence } = model.page;
    // While it computes, the line says already that results are missing: "Waiting for Python" would add nothing.
    // They are missing because the lesson still runs, so that is said.
    const isPatient = model.get("state") === "computing" && !runningText();
    const isSilent = silence > (isPatient ? 1 : 0);
    const fraction = isSilent ? -1 : model.get("fraction");
    el.closest(".ex-root")?.toggleAttribute("data-silent", silence > 0);
    el.dataset.state = isSilent ? "stale" : model.get("state");
    write(text, isSilent ? runningText() || SILENCE_TEXTS[silence] : model.get("text"));
    write(detail, isSilent ? "" : model.get("detail"));
    progress.hidden = fraction < 0;
    if (fraction > 1) progress.removeAttribute("value");
    else progress.value = Math.max(fraction, 0);
    for (const [name, node] of Object.entries(buttons)) {
      setText(node, model.get(name));
      node.hidden = !model.get(name);
    }
  };
  model.page.listeners.add(paint);
  const stop = follow(model, "state text detail fraction action offer", paint);
  return callAll([() => model.page.listeners.delete(paint), stop]);
}
