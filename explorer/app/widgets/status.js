/* The status line. Only `text` sits in the live region: progress would be read out without end. */

export default {
  render({ model, el }) {
    el.classList.add("ex-status");
    const mark = document.createElement("span");
    const text = document.createElement("span");
    const detail = document.createElement("span");
    const progress = document.createElement("progress");
    const [offer, action] = ["offer", "action"].map((name) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "ex-button";
      button.addEventListener("click", () => press(model, name));
      return button;
    });
    mark.className = "ex-mark";
    mark.setAttribute("aria-hidden", "true");
    text.className = "ex-status-text";
    text.setAttribute("role", "status");
    text.setAttribute("aria-live", "polite");
    detail.className = "ex-status-detail";
    progress.setAttribute("aria-label", "Progress");
    offer.classList.add("ex-primary");
    el.append(mark, text, detail, progress, offer, action);

    const paint = () => {
      const fraction = model.get("fraction");
      el.dataset.state = model.get("state");
      write(text, model.get("text"));
      write(detail, model.get("detail"));
      progress.hidden = fraction < 0;
      if (fraction > 1) progress.removeAttribute("value");
      else progress.value = Math.max(fraction, 0);
      for (const [button, label] of [[offer, model.get("offer")], [action, model.get("action")]]) {
        button.textContent = label;
        button.hidden = !label;
      }
    };
    const events = "change:state change:text change:detail change:fraction change:action change:offer";
    model.on(events, paint);
    paint();
    return () => model.off(events, paint);
  },
};
