/* The picture of all layers, and the drawing of the one that is chosen in it, as the kernel draws them.

   A pointer on the picture or on a chart chooses the layer, and so do the arrow keys. A part of the drawing opens its
   control. */

/** Shows the control of a field beside the diagram, and gives it the focus. */
function openControl(root, field) {
  const control = root?.querySelector(`.ex-side [data-field="${field}"]`);
  if (!control) return; // a teacher's link may hide it
  control.closest("details")?.setAttribute("open", "");
  control.classList.remove("ex-folded");
  bringIntoView(control);
  control.querySelector("input:not(:disabled), select:not(:disabled)")?.focus({ preventScroll: true });
}

/** Gives a node the content of a fresh one. Nodes that fit are kept: new ones would make the browser lay out the page. */
function patch(node, fresh) {
  const [nodes, others] = [[...node.childNodes], [...fresh.childNodes]];
  if (String(nodes.map((child) => child.nodeName)) !== String(others.map((child) => child.nodeName))) {
    node.replaceChildren(...others);
    return;
  }
  nodes.forEach((child, index) => {
    const other = others[index];
    if (child.nodeType === Node.TEXT_NODE) setText(child, other.textContent);
    for (const { name, value } of other.attributes ?? []) setAttribute(child, name, value);
    patch(child, other);
  });
}

const LEAST_MS = 100; // between two pictures of the stack: while a slider is dragged, the charts have most of the time

/** Pairs of a depth in layers and a share of the picture's width, between which layers have equal room. */
const knotsOf = (view) => view.dataset.knots.split(" ").map((knot) => knot.split(":").map(Number));

/** The value at `x` on the line through points, `[x, y]` each. */
function onLine(points, x) {
  const after = points.findIndex(([end], index) => index && x <= end);
  const end = after < 0 ? points.length - 1 : after;
  const [[x0, y0], [x1, y1]] = [points[end - 1], points[end]];
  return y0 + ((y1 - y0) * (x - x0)) / (x1 - x0);
}

/** The layer in which a pointer is: below 1, or too large, beside the layers. */
function layerAt(view, { clientX }) {
  const { left, width } = view.getBoundingClientRect();
  return Math.ceil(onLine(knotsOf(view).map(([depth, share]) => [share, depth]), (clientX - left) / width));
}

export function stack(model, el) {
  become(el, "ex-stack", { role: "group", "aria-label": "The stack of layers" });
  const words = make("p", { class: "ex-spoken" }), picture = make("div", { class: "ex-stack-picture", "aria-hidden": "true" });
  const slider = make("input", { type: "range", min: 1, class: "ex-spoken", "aria-label": "Layer of the diagram", ...OWN_KEYS });
  el.append(words, slider, picture);
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
    wanted = Math.min(Math.max(1, Math.ceil(depth) || 1), model.get("layers"));
    ask();
  };
  /** Tells the panel, and so the charts and this picture, of a depth, or of none. */
  const point = (depth) => el.dispatchEvent(new CustomEvent("ex-layer", { bubbles: true, detail: depth }));
  const stopListening = callAll([
    listen(picture, "pointermove pointerdown", (event) => {
      const view = event.target.closest(".ex-stack-view");
      if (view) point(layerAt(view, event));
    }),
    listen(picture, "pointerleave", () => point(null)), listen(slider, "blur", () => point(null)),
    listen(slider, "input", () => point(Number(slider.value))),
    listenInPanel(el, "ex-layer", ({ detail }) => detail !== null && choose(detail)),
  ]);
  let painted = -LEAST_MS, timer = 0;
  const paintPicture = () => {
    [painted, timer] = [performance.now(), 0];
    patch(picture, parsedHtml(model.get("picture")));
    mark();
  };
  const paintInTime = () => {
    const left = painted + LEAST_MS - performance.now();
    if (left <= 0) paintPicture();
    else if (!timer) timer = setTimeout(paintPicture, left);
  };
  const mark = () => {
    const layer = model.get("layer");
    for (const view of picture.querySelectorAll(".ex-stack-view")) {
      const [left, right] = [layer - 1, layer].map((depth) => 100 * onLine(knotsOf(view), depth));
      Object.assign(view.firstChild.style, { left: `${left}%`, width: `${right - left}%` });
    }
    Object.assign(slider, { max: model.get("layers"), value: layer });
    slider.setAttribute("aria-valuetext", model.get("words"));
    setText(words, model.get("description"));
  };
  return callAll([stopListening, () => clearTimeout(timer), follow(model, "picture", paintInTime), follow(model, "layer words", mark)]);
}

export function diagram(model, el) {
  become(el, "ex-diagram", { role: "group", "aria-label": "Diagram of a layer" });
  const head = make("p", { class: "ex-diagram-head" }), blocks = make("div", { class: "ex-blocks" });
  el.append(head, blocks);
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
  return callAll([follow(model, "svg", () => {
    const hasFocus = blocks.contains(document.activeElement);
    patch(blocks, parsedHtml(model.get("svg")));
    makeStop(stop);
    if (hasFocus) parts()[stop]?.focus({ preventScroll: true });
  }), follow(model, "head", () => patch(head, parsedHtml(model.get("head"))))]);
}
