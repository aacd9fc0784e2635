/* The diagram of a layer, as the kernel draws it. A part opens its control; the charts choose the layer by a pointer. */

/** Shows the control of a field beside the diagram, and gives it the focus. */
function openControl(root, field) {
  const control = root?.querySelector(`.ex-side [data-field="${field}"]`);
  if (!control) return; // a teacher's link may hide it
  control.closest("details")?.setAttribute("open", "");
  control.classList.remove("ex-folded");
  bringIntoView(control);
  control.querySelector("input:not(:disabled), select:not(:disabled)")?.focus({ preventScroll: true });
}

export function diagram(model, el) {
  become(el, "ex-diagram", { role: "group", "aria-label": "Diagram of a layer" });
  let wanted = 0, isAsking = false;
  const ask = () => {
    if (isAsking || wanted === model.get("layer")) return;
    const layer = wanted;
    isAsking = true;
    model.act(["layer", layer], () => {
      isAsking = false;
      if (wanted !== layer) ask(); // the pointer has moved on
    });
  };
  const choose = (depth) => {
    wanted = Math.min(Math.max(1, Math.ceil(depth) || 1), Number(entry.max));
    ask();
  };
  const partsOfHead = () => {
    const head = parsedHtml(model.get("head"));
    return { entry: head.querySelector("input"), texts: [...head.querySelectorAll("span")] };
  };
  const { entry, texts } = partsOfHead(), blocks = make("div", { class: "ex-blocks" });
  setAttributes(entry, OWN_KEYS);
  entry.addEventListener("change", () => choose(Number(entry.value)));
  el.append(entry.parentElement, blocks);
  let stop = 0; // the number of the part that Tab reaches
  const parts = () => [...blocks.querySelectorAll(".ex-part")];
  const makeStop = (index) => {
    stop = Math.max(0, Math.min(index, parts().length - 1));
    parts().forEach((part, at) => part.setAttribute("tabindex", at === stop ? 0 : -1));
  };
  const open = (part) => part && openControl(el.closest(".ex-explore"), part.dataset.opens);
  blocks.addEventListener("click", ({ target }) => open(target.closest(".ex-part")));
  blocks.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step && !["Enter", " "].includes(event.key)) return;
    event.preventDefault();
    if (!step) return void open(event.target.closest(".ex-part"));
    makeStop(parts().indexOf(event.target) + step);
    parts()[stop].focus();
  });
  const stopListening = listenInPanel(el, "ex-layer", ({ detail }) => detail !== null && choose(detail));
  return callAll([stopListening, follow(model, "svg", () => {
    const hasFocus = blocks.contains(document.activeElement);
    blocks.replaceChildren(...parsedHtml(model.get("svg")).children);
    makeStop(stop);
    if (hasFocus) parts()[stop]?.focus({ preventScroll: true });
  }), follow(model, "head", () => { // the entry stays, and with it the focus
    const { entry: { value, max }, texts: words } = partsOfHead();
    Object.assign(entry, { value, max });
    texts.forEach((node, index) => setText(node, words[index].textContent));
  })]);
}
