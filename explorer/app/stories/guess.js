/* A guess that is drawn on a chart before its dots are shown: with mouse or finger across the plot, or by keyboard,
   for which each point is a slider. Below the chart are the buttons, and afterwards how good the guess was. */

const KEY_STEPS = 50; // steps of the arrow keys from one end of the axis to the other
const POINTER_REACH = 14; // pixels across from the pointer within which the nearest point follows it

class Guess {
  constructor(model, plot, card) {
    this.model = model;
    this.plot = plot;
    this.card = card;
    this.question = {}; // the trait `ask`
    this.points = []; // a slider for each depth of the question
    this.heights = []; // of the points; on a logarithmic axis the exponent
    this.pointer = null; // where the pointer was last, while it draws
    this.build();
    this.listen();
    this.end = follow(model, "ask", () => this.begin());
  }

  build() {
    this.line = makeSvg("polyline", { class: "ex-guess-line" });
    this.sheet = makeSvg("svg", { class: "ex-guess-sheet", "aria-hidden": "true" }, this.line);
    this.overlay = make("div", { class: "ex-guess" }, this.sheet);
    this.hint = make("span", { class: "ex-guess-words" });
    this.reveal = button("Reveal", "ex-button ex-primary", () => this.model.act(["reveal", this.heights]));
    this.skip = button("Skip", "ex-link", () => this.model.act(["skip"]), { title: "Reveal without a guess" });
    this.back = button("Back to the story", "ex-link ex-guess-on", () => {
      const story = this.card.closest(".ex-root").querySelector(".ex-told");
      story.scrollIntoView({ block: "nearest" });
      story.querySelector(".ex-story-bar .ex-primary").focus({ preventScroll: true });
    });
    this.footer = make("div", { class: "ex-guess-below", role: "group", "aria-label": "Your guess" },
      this.hint, this.reveal, this.skip, this.back);
  }

  listen() {
    const positionOf = (event) => {
      const { left, top } = this.overlay.getBoundingClientRect();
      return { x: event.clientX - left, y: event.clientY - top };
    };
    this.overlay.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      event.preventDefault();
      this.overlay.setPointerCapture(event.pointerId);
      const position = positionOf(event);
      this.draw(position, position);
    });
    this.overlay.addEventListener("pointermove", (event) => {
      if (this.pointer) this.draw(this.pointer, positionOf(event));
    });
    listen(this.overlay, "pointerup pointercancel", () => { this.pointer = null; });
  }

  /** Start, length and range of an axis, in pixels of the sheet and as exponents where the axis is logarithmic. */
  scale(axisName) {
    const area = this.plot.querySelector(".nsewdrag").getBoundingClientRect(); // takes plotly's drags of the plot area
    const { left, top } = this.plot.getBoundingClientRect(), [from, to] = this.plot.layout[axisName].range;
    return axisName === "xaxis" ? { start: area.left - left, length: area.width, from, to }
      : { start: area.bottom - top, length: -area.height, from, to };
  }

  pixel(axisName, value) {
    const { start, length, from, to } = this.scale(axisName);
    return start + length * (value - from) / (to - from);
  }

  paint() {
    const { depths, log } = this.question;
    const pixels = this.heights.map((height, at) => [this.pixel("xaxis", depths[at]), this.pixel("yaxis", height)]);
    this.points.forEach((input, index) => {
      const [[x, y], height] = [pixels[index], this.heights[index]];
      Object.assign(input.parentElement.style, { left: `${x}px`, top: `${y}px` });
      input.value = height;
      input.setAttribute("aria-valuetext", log ? (10 ** height).toPrecision(2) : height.toFixed(2));
    });
    this.line.setAttribute("points", pixels.map(([x, y]) => `${x},${y}`).join(" "));
  }

  setHeight(index, height) {
    this.heights[index] = Math.min(this.question.high, Math.max(this.question.low, height));
    this.reveal.disabled = false;
    this.paint();
  }

  /** Sets the points between two positions of the pointer to the line between these, and the nearest point to `to`. */
  draw(from, to) {
    const { start, length, from: low, to: high } = this.scale("yaxis");
    const heightAt = (y) => low + (high - low) * (y - start) / length;
    const pixels = this.question.depths.map((depth) => this.pixel("xaxis", depth));
    pixels.forEach((x, index) => {
      const share = from.x === to.x ? 1 : (x - from.x) / (to.x - from.x);
      if (share >= 0 && share < 1) this.setHeight(index, heightAt(from.y + share * (to.y - from.y)));
    });
    const gaps = pixels.map((x) => Math.abs(x - to.x));
    const nearest = gaps.indexOf(Math.min(...gaps));
    if (gaps[nearest] < POINTER_REACH || from === to) this.setHeight(nearest, heightAt(to.y));
    this.pointer = to;
  }

  /** Places the guess over the plot; called after each drawing. */
  place() {
    const { plot, overlay } = this;
    if (!this.question.depths || !plot.querySelector(".nsewdrag")) return;
    if (!overlay.isConnected) this.card.append(overlay);
    const box = { left: plot.offsetLeft, top: plot.offsetTop, width: plot.clientWidth, height: plot.clientHeight };
    for (const [name, value] of Object.entries(box)) overlay.style[name] = `${value}px`;
    this.paint();
  }

  /** Starts a question, shows its result, or removes both where the trait `ask` is empty. */
  begin() {
    this.question = this.model.get("ask");
    const { depths, low, high, said: result } = this.question;
    this.overlay.remove();
    this.footer.remove();
    this.overlay.replaceChildren(this.sheet);
    this.card.classList.toggle("ex-asked", Boolean(depths));
    this.hint.textContent = result ?? "Drag across the chart, or move its points with the arrow keys.";
    [this.reveal.hidden, this.skip.hidden, this.back.hidden] = [!depths, !depths, !result];
    if (!depths && !result) return;
    this.card.append(this.footer);
    if (!depths) return;
    this.heights = depths.map(() => (low + high) / 2);
    this.reveal.disabled = true;
    this.points = depths.map((depth, index) => make("input", {
      type: "range", min: low, max: high, step: (high - low) / KEY_STEPS,
      "aria-label": depth ? `Guess at layer ${depth}` : "Guess at the input", ...OWN_KEYS,
      oninput: ({ target }) => this.setHeight(index, Number(target.value)),
    }));
    this.overlay.append(...this.points.map((input) => make("div", { class: "ex-guess-point" }, input)));
    this.place();
  }
}
