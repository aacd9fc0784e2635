/* The status line. Only `text` sits in the live region: progress would be read out without end. Where the kernel is
   silent it says so, and has the page show all charts as stale: what they show may not be what was asked for. */

const SILENT = ["", "Waiting for Python", "Python does not answer"];

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
    const channel = channelOf(model);
    const paint = () => {
      const { silence } = channel;
      const silent = silence > (model.get("state") === "computing" ? 1 : 0); // which does not say that all is measured
      const fraction = silent ? -1 : model.get("fraction");
      el.closest(".ex-root")?.toggleAttribute("data-silent", silence > 0);
      el.dataset.state = silent ? "stale" : model.get("state");
      write(text, silent ? SILENT[silence] : model.get("text"));
      write(detail, silent ? "" : model.get("detail"));
      progress.hidden = fraction < 0;
      if (fraction > 1) progress.removeAttribute("value");
      else progress.value = Math.max(fraction, 0);
      for (const [name, node] of Object.entries(buttons)) {
        put(node, model.get(name));
        node.hidden = !model.get(name);
      }
    };
    channel.listeners.add(paint);
    const end = follow(model, "state text detail fraction action offer", paint);
    return () => {
      channel.listeners.delete(paint);
      end();
    };
  },
};
