/* The status line. Only `text` sits in the live region: progress would be read out without end. */

export default {
  render({ model, el }) {
    el.classList.add("ex-status");
    const mark = document.createElement("span");
    const text = document.createElement("span");
    const detail = document.createElement("span");
    const progress = document.createElement("progress");
    const action = document.createElement("button");
    mark.className = "ex-mark";
    mark.setAttribute("aria-hidden", "true");
    text.className = "ex-status-text";
    text.setAttribute("role", "status");
    text.setAttribute("aria-live", "polite");
    detail.className = "ex-status-detail";
    progress.setAttribute("aria-label", "Progress");
    action.type = "button";
    action.className = "ex-button";
    action.addEventListener("click", () => press(model, "action"));
    el.append(mark, text, detail, progress, action);

    const paint = () => {
      const fraction = model.get("fraction");
      el.dataset.state = model.get("state");
      if (text.textContent !== model.get("text")) text.textContent = model.get("text");
      detail.textContent = model.get("detail");
      progress.hidden = fraction < 0;
      if (fraction > 1) progress.removeAttribute("value");
      else progress.value = Math.max(fraction, 0);
      action.textContent = model.get("action");
      action.hidden = !model.get("action");
    };
    const events = "change:state change:text change:detail change:fraction change:action";
    model.on(events, paint);
    paint();
    return () => model.off(events, paint);
  },
};
