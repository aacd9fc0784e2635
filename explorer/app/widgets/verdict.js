/* The verdict bar: one finding, its evidence, a button; further findings in a list that unfolds. */

const SIGNS = { good: "✓", warning: "!", bad: "×" };
const WORDS = { good: "Good", warning: "Warning", bad: "Problem" };

function button(model, text, content, primary) {
  const node = document.createElement("button");
  node.type = "button";
  node.className = primary ? "ex-button ex-primary" : "ex-button";
  node.textContent = text;
  node.addEventListener("click", () => press(model, content));
  return node;
}

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
  if (item.remedy) node.append(button(model, item.remedy, index, true));
  return node;
}

export default {
  render({ model, el }) {
    el.classList.add("ex-verdict");
    el.setAttribute("role", "region");
    el.setAttribute("aria-label", "Verdict");
    let open = false;
    // Where the page is narrow, the chart that stays in sight stands below the verdict, however long that is.
    const sized = new ResizeObserver(() => {
      el.closest(".ex-explore")?.style.setProperty("--ex-verdict-height", `${el.offsetHeight}px`);
    });
    sized.observe(el);
    const fade = () => el.classList.toggle("ex-stale", model.get("stale"));
    const paint = () => {
      const nodes = model.get("findings").map((item, index) => finding(model, item, index));
      el.hidden = nodes.length === 0;
      if (nodes.length && model.get("undo")) {
        const undo = button(model, "Undo", "undo", false);
        undo.title = `Takes back: ${model.get("undo")}`;
        nodes[0].append(undo);
      }
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
    model.on("change:findings change:undo", paint);
    model.on("change:stale", fade); // alone, so that a button that is being pressed stays
    paint();
    fade();
    return () => {
      sized.disconnect();
      model.off("change:findings change:undo", paint);
      model.off("change:stale", fade);
    };
  },
};
