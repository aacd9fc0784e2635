/* The verdict bar: one finding, its evidence, a button; further findings behind a fold. */

const SIGNS = { good: "✓", warning: "!", bad: "×" };
const WORDS = { good: "Good", warning: "Warning", bad: "Problem" };

function finding(model, item, index) {
  const node = document.createElement("div");
  node.className = "ex-finding";
  node.dataset.severity = item.severity;
  const sign = document.createElement("span");
  sign.className = "ex-sign";
  sign.textContent = SIGNS[item.severity] ?? "";
  sign.setAttribute("role", "img");
  sign.setAttribute("aria-label", WORDS[item.severity] ?? item.severity);
  const words = document.createElement("p");
  const meaning = document.createElement("strong");
  write(meaning, item.meaning);
  words.append(meaning, " ", ...typeset(item.evidence));
  node.append(sign, words);
  if (item.remedy) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "ex-button ex-primary";
    button.textContent = item.remedy;
    button.addEventListener("click", () => press(model, index));
    node.append(button);
  }
  return node;
}

export default {
  render({ model, el }) {
    el.classList.add("ex-verdict");
    el.setAttribute("role", "region");
    el.setAttribute("aria-label", "Verdict");
    let open = false;
    const fade = () => el.classList.toggle("ex-stale", model.get("stale"));
    const paint = () => {
      const nodes = model.get("findings").map((item, index) => finding(model, item, index));
      el.hidden = nodes.length === 0;
      el.replaceChildren(...nodes.slice(0, 1));
      if (nodes.length < 2) return;
      const more = document.createElement("details");
      const summary = document.createElement("summary");
      summary.textContent = nodes.length === 2 ? "1 more finding" : `${nodes.length - 1} more findings`;
      more.append(summary, ...nodes.slice(1));
      more.open = open;
      more.addEventListener("toggle", () => { open = more.open; });
      el.append(more);
    };
    model.on("change:findings", paint);
    model.on("change:stale", fade); // alone, so that a button that is being pressed stays
    paint();
    fade();
    return () => {
      model.off("change:findings", paint);
      model.off("change:stale", fade);
    };
  },
};
