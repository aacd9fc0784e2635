/* A line that is drawn on a chart before its dots are shown: by mouse or finger across the plot, or point by point by
   keyboard, each point being a slider. Below the chart stand the buttons, and afterwards what came of the guess. */

const SHARES = 50; // steps of a point over the whole axis, by keyboard

/** What is added to a card; `place` puts it over the plot, after each drawing. */
function guessing(model, plot, card) {
  const line = drawn("polyline", { class: "ex-guess-line" });
  const sheet = drawn("svg", { class: "ex-guess-sheet", "aria-hidden": "true" });
  sheet.append(line);
  const over = make("div", { class: "ex-guess" }, sheet);
  const hint = make("span", { class: "ex-guess-words" });
  const send = (content) => press(model, content);
  const reveal = button("Reveal", "ex-button ex-primary", () => send(["reveal", heights]));
  const skip = button("Skip", "ex-link", () => send(["skip"]), { title: "Reveal without a guess" });
  const on = button("Back to the story", "ex-link ex-guess-on", () => {
    const strip = card.closest(".ex-root").querySelector(".ex-told");
    strip.scrollIntoView({ block: "nearest" });
    strip.querySelector(".ex-story-bar .ex-primary").focus({ preventScroll: true });
  });
  const below = make("div", { class: "ex-guess-below", role: "group", "aria-label": "Your guess" }, hint, reveal, skip, on);
  let points = []; // a slider a depth
  let heights = [];
  let ask = {};

  /** Pixels within the sheet; plotly's `l` is the exponent on a logarithmic axis. */
  const across = (depth) => plot._fullLayout.xaxis._offset + plot._fullLayout.xaxis.l2p(depth);
  const down = (height) => plot._fullLayout.yaxis._offset + plot._fullLayout.yaxis.l2p(height);
  const clamp = (height) => Math.min(ask.high, Math.max(ask.low, height));

  function paint() {
    points.forEach((input, index) => {
      const at = { left: `${across(ask.depths[index])}px`, top: `${down(heights[index])}px` };
      Object.assign(input.parentElement.style, at);
      input.value = heights[index];
      input.setAttribute("aria-valuetext", spoken(heights[index]));
    });
    line.setAttribute("points", heights.map((height, index) => `${across(ask.depths[index])},${down(height)}`).join(" "));
  }

  const spoken = (height) => (ask.log ? (10 ** height).toPrecision(2) : height.toFixed(2));

  function change(index, height) {
    heights[index] = clamp(height);
    reveal.disabled = false;
    paint();
  }

  function point(depth, index) {
    const words = depth ? `Guess at layer ${depth}` : "Guess at the input";
    const step = (ask.high - ask.low) / SHARES;
    const input = make("input", { type: "range", min: ask.low, max: ask.high, step, "aria-label": words, ...OWN_KEYS });
    input.addEventListener("input", () => change(index, Number(input.value)));
    return input;
  }

  /** Sets every point between two places of the pointer, at least the nearest one. */
  function drag(from, to) {
    const { yaxis } = plot._fullLayout;
    const height = (y) => yaxis.p2l(y - yaxis._offset);
    const places = ask.depths.map(across);
    const gaps = places.map((x) => Math.abs(x - to.x));
    places.forEach((x, index) => {
      const share = from.x === to.x ? 1 : (x - from.x) / (to.x - from.x);
      if (share >= 0 && share < 1) change(index, height(from.y + share * (to.y - from.y)));
    });
    const nearest = gaps.indexOf(Math.min(...gaps));
    if (gaps[nearest] < 14 || from === to) change(nearest, height(to.y));
  }

  let last = null;
  const where = (event) => {
    const box = over.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  over.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    event.preventDefault();
    over.setPointerCapture(event.pointerId);
    last = where(event);
    drag(last, last);
  });
  over.addEventListener("pointermove", (event) => {
    if (!last) return;
    const now = where(event);
    drag(last, now);
    last = now;
  });
  for (const end of ["pointerup", "pointercancel"]) over.addEventListener(end, () => { last = null; });

  function place() {
    if (!ask.depths || !plot._fullLayout?.xaxis?.l2p) return;
    if (!over.isConnected) card.append(over);
    const box = { left: plot.offsetLeft, top: plot.offsetTop, width: plot.clientWidth, height: plot.clientHeight };
    for (const [name, value] of Object.entries(box)) over.style[name] = `${value}px`;
    paint();
  }

  function begin() {
    ask = model.get("ask");
    over.remove();
    below.remove();
    over.replaceChildren(sheet);
    card.classList.toggle("ex-asked", Boolean(ask.depths));
    hint.textContent = ask.said ?? "Drag across the chart, or move its points with the arrow keys.";
    [reveal.hidden, skip.hidden, on.hidden] = [!ask.depths, !ask.depths, !ask.said];
    if (!ask.depths && !ask.said) return;
    card.append(below);
    if (!ask.depths) return;
    heights = ask.depths.map(() => (ask.low + ask.high) / 2);
    reveal.disabled = true;
    points = ask.depths.map(point);
    over.append(...points.map((input) => make("div", { class: "ex-guess-point" }, input)));
    place();
  }

  return { place, end: follow(model, "ask", begin) };
}
