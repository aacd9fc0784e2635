/* The status line. Only `text` sits in the live region: progress would be read out without end. */

export default {
  render({ model, el }) {
    become(el, "ex-status");
    const text = make("span", { class: "ex-status-text", role: "status", "aria-live": "polite" });
    const detail = make("span", { class: "ex-status-detail" });
    const progress = make("progress", { "aria-label": "Progress" });
    const buttons = {
      offer: button("", "ex-button ex-primary", () => press(model, "offer")),
      action: button("", "ex-button", () => press(model, "action")),
    };
    el.append(make("span", { class: "ex-mark", "aria-hidden": "true" }), text, detail, progress, ...Object.values(buttons));
    return follow(model, "state text detail fraction action offer", () => {
      const fraction = model.get("fraction");
      el.dataset.state = model.get("state");
      write(text, model.get("text"));
      write(detail, model.get("detail"));
      progress.hidden = fraction < 0;
      if (fraction > 1) progress.removeAttribute("value");
      else progress.value = Math.max(fraction, 0);
      for (const [name, node] of Object.entries(buttons)) {
        put(node, model.get(name));
        node.hidden = !model.get(name);
      }
    });
  },
};
