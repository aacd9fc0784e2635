/* One chart: a card whose plot shows the `figure` trait, drawn by the page's only copy of plotly.js.

   The kernel sends what changed of a figure, see `taken`. Redraws never queue: they wait for the next frame, newer
   figures replace each other meanwhile, and the last is drawn. If only its numbers moved, the rest of the drawing stays,
   and they go ahead of plotly, see `trail`.
   A plot without a size (in a closed tab), or too narrow for its axes, waits until it has room; one that is not on the
   screen, until the browser has nothing else to do.
   Colors come from the page's CSS variables; figures carry none of their own but the hues of their data. */

const NARROWEST = 60; // pixels; below, plotly would place words at minus infinity
const REST = 150; // milliseconds without a new figure, after which plotly hears of what went ahead
const RESTS = 6; // of them, at most, while the next figure is computed with the processors that plotly would take

/** What plotly may do: nothing that leaves this page, and no buttons or words of its own on the drawing. */
const SETTINGS = {
  displaylogo: false,
  displayModeBar: false,
  doubleClick: false, // plotly would go back to the first figure it ever drew, not to this one
  showTips: false,
  showSendToCloud: false,
  plotlyServerURL: "",
  typesetMath: false,
};

const axes = (layout) => Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key));

/** Puts a person's zoom on a new layout, unless the new data lie elsewhere or are of something else: then forgets it. */
function keepZoom(layout, zoom, before) {
  const ends = (range) => [Math.min(...range), Math.max(...range)];
  const apart = axes(layout).some((name) => {
    if (!zoom.has(name) || !layout[name].range) return false;
    const [[low, high], [from, to]] = [ends(layout[name].range), ends(zoom.get(name))];
    return to <= low || from >= high || layout[name].title?.text !== before[name].title?.text;
  });
  if (apart) zoom.clear();
  for (const [name, range] of zoom) Object.assign((layout[name] ??= {}), { range, autorange: false });
}

/** Gives a bare layout the page's colors; what the figure itself decided stays. */
function dress(layout, [width, height], { surface, border, text, muted, grid, family }) {
  Object.assign(layout, { autosize: false, width, height }); // or plotly would measure its box at every change
  layout.uirevision = "kept"; // series hidden in a legend stay hidden
  layout.font = { family, size: 12, color: muted, ...layout.font };
  layout.hoverlabel = { bgcolor: surface, bordercolor: border, align: "left", font: { color: text, family, size: 12 } };
  for (const name of axes(layout)) {
    const uirevision = performance.now(); // ranges are ours, see keepZoom
    const drawn = { gridcolor: grid, zerolinecolor: grid, linecolor: border };
    // Labels have room; to hide those that had none, plotly would measure each at every change.
    layout[name] = { ...drawn, ticklabeloverflow: "allow", ...layout[name], uirevision };
  }
  return layout;
}

/** Calls back whenever the page may have changed its colors; returns what ends it. */
function onColors(callback) {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const body = new MutationObserver(callback);
  dark.addEventListener("change", callback);
  body.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name"] });
  return () => {
    dark.removeEventListener("change", callback);
    body.disconnect();
  };
}

const looked = new WeakMap(); // model to its cards that are on the screen, and whether the kernel takes it for seen

const TEXTS = "title caption why lab source badge badge_tone badge_rule stale ahead designs";

class Card {
  constructor(model) {
    this.model = model;
    this.alive = true;
    this.wanted = true; // a figure, or new colors, not drawn yet
    this.busy = false;
    this.listening = false;
    this.asked = false; // for a time to draw
    this.ours = false; // whether it is this card that changes the axes
    this.shown = null; // the figure that is drawn
    this.known = null; // the one that plotly was given last, in the page's colors and this size
    this.ahead = new Set(); // traces that moved since, without plotly
    this.resting = null; // a timeout
    this.size = [0, 0];
    this.zoom = new Map(); // axis to the range that a person chose
    this.build();
    this.guess = guessing(model, this.plot, this.el);
    this.renew = this.renew.bind(this);
    this.reset = this.reset.bind(this);
    this.place = onScreen(this.plot, (seen) => {
      this.tell(seen);
      if (seen) this.take();
    });
    this.sized = new ResizeObserver(() => this.resize());
    this.sized.observe(this.plot);
    this.ends = [
      follow(model, TEXTS, () => this.write()), follow(model, "title description", () => this.describe()),
      follow(model, "patch figure stale", () => this.take()), onColors(this.renew), onPrint(() => this.draw()),
      () => this.sized.disconnect(), () => this.place.end(), savesFiles(model), this.guess.end,
    ];
  }

  build() {
    this.title = make("h3", { class: "ex-chart-title" });
    this.tools = make("div", { class: "ex-chart-tools", role: "group" }, ...this.buttons());
    this.stale = make("span", { class: "ex-chart-stale" }, "stale");
    this.badge = make("span", { class: "ex-chart-badge" });
    this.caption = make("p", { class: "ex-chart-caption" });
    this.why = make("p", { class: "ex-chart-why" });
    this.legend = make("p", { class: "ex-chart-legend" });
    this.plot = make("div", { class: "ex-chart-plot", "data-drawn": 0 });
    const header = make("div", { class: "ex-chart-header" }, this.title, this.stale, this.badge);
    const words = make("figcaption", { class: "ex-chart-words" }, header, this.caption, this.why, this.tools, this.legend);
    this.el = make("figure", { class: "ex-chart" }, words, this.plot);
    // A finger scrolls the page and taps; it would zoom by accident. What follows a tap comes as a mouse's.
    this.plot.addEventListener("touchstart", (event) => event.stopPropagation(), { capture: true });
  }

  buttons() {
    const rows = [
      ["+", "Zoom in", () => this.magnify(0.5)],
      ["−", "Zoom out", () => this.magnify(2)],
      ["Reset", "Reset zoom", () => this.reset()],
    ];
    const tools = rows.map(([words, title, click]) => (
      button(words, "ex-chart-tool", () => this.listening && click(), { title, "aria-label": title })));
    return [...tools, ...saveMenu({
      PNG: () => this.listening && this.save("png"), SVG: () => this.listening && this.save("svg"),
      HTML: () => press(this.model, "html"), CSV: () => press(this.model, "csv"),
    })];
  }

  /** Zooms about the middle; less than 1 comes closer. */
  magnify(factor) {
    const changes = {};
    for (const name of axes(this.plot.layout)) {
      const [low, high] = this.plot.layout[name].range;
      const [middle, half] = [(low + high) / 2, ((high - low) / 2) * factor];
      changes[`${name}.range`] = [middle - half, middle + half];
    }
    this.Plotly.relayout(this.plot, changes);
  }

  async save(format) {
    this.wanted = true;
    await this.draw(); // plotly may not have heard of all yet
    const get = (name) => this.model.get(name);
    const said = [get("caption"), get("marks")].filter(Boolean);
    download(this.Plotly, this.plot, this.el, { title: get("title"), said, designs: get("designs") }, format);
  }

  write() {
    const get = (name) => this.model.get(name);
    put(this.title, get("title"));
    write(this.caption, get("caption"), explained);
    writeWhy(this.why, { why: get("why"), lab: get("lab"), source: get("source") });
    write(this.badge, get("badge"));
    this.badge.hidden = !get("badge");
    this.badge.dataset.tone = get("badge_tone");
    this.badge.title = get("badge_rule");
    this.stale.hidden = !get("stale");
    this.tools.setAttribute("aria-label", `Chart: ${get("title")}`);
    this.el.classList.toggle("ex-chart-is-stale", get("stale"));
    this.el.classList.toggle("ex-chart-ahead", get("stale") && get("ahead"));
    this.writeLegend(get("designs"));
  }

  /** The designs by name, where there are several: the list of pins may be far above. */
  writeLegend(designs) {
    this.legend.hidden = designs.length < 2;
    const names = JSON.stringify(designs.map(({ about, ...marks }) => marks));
    if (designs.length > 1) write(this.legend, names, () => designs.map((design) => {
      const mark = swatch();
      mark.paint(design);
      return make("span", {}, mark.svg, ...typeset(design.name));
    }));
  }

  /** The picture is the drawing, not the buttons beside it: those stay within reach. */
  describe() {
    const [drawing, ...layers] = this.plot.querySelectorAll(".main-svg");
    drawing?.setAttribute("role", "img");
    drawing?.setAttribute("aria-label", this.model.get("description") || this.model.get("title"));
    for (const layer of layers) layer.setAttribute("aria-hidden", "true");
  }

  /** Paper is as wide as it is: with a view box, a drawing fits any width. */
  scale() {
    const { width, height } = this.plot._fullLayout;
    for (const layer of this.plot.querySelectorAll(".main-svg")) layer.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.plot.style.setProperty("--chart-shape", `${width} / ${height}`);
  }

  /** Tells the kernel whether any view of the chart is on the screen: not as a trait, for the figure would go with it. */
  tell(seen) {
    const whole = looked.get(this.model) ?? { cards: new Set(), seen: true };
    looked.set(this.model, whole);
    whole.cards[seen ? "add" : "delete"](this);
    if (whole.seen === whole.cards.size > 0) return;
    whole.seen = !whole.seen;
    try {
      this.model.send(["seen", whole.seen]);
    } catch {
      // JupyterLab leaves the charts of a kernel that has ended on the page: there is nobody to tell
    }
  }

  /** Another figure may have come. */
  take() {
    taken(this.model);
    clearTimeout(this.resting);
    if (this.model.get("figure") !== this.known) this.redraw();
  }

  /** At the next frame: until then the kernel is answered, and makes the next figure while this one is drawn. */
  redraw() {
    this.wanted = true;
    if (this.asked || !this.due()) return;
    this.asked = true;
    this.plot.dataset.waits = ""; // until it is drawn: whoever looks at the page can tell
    const soon = this.place.seen ? requestAnimationFrame : idly; // what is looked at comes first
    soon(() => {
      this.asked = false;
      this.draw();
    });
  }

  /** The same figure, but all of it. */
  renew() {
    this.known = null;
    this.redraw();
  }

  /** Whether it has room; while something moves, a plot that is not on the screen waits until all is at rest. */
  due() {
    const may = this.place.seen || !this.model.get("stale") || printed();
    return may && this.size[0] >= NARROWEST;
  }

  async draw() {
    if (this.busy) return;
    this.busy = true;
    try {
      this.Plotly ??= await plotly();
      while (this.alive && this.wanted && this.due()) {
        this.wanted = false;
        await this.paint();
      }
    } catch (error) {
      this.Plotly?.purge(this.plot);
      this.listening = false;
      this.shown = this.known = null;
      this.plot.textContent = `This chart could not be drawn: ${error.message}`;
      console.error(error);
    } finally {
      this.busy = this.ours = false;
      if (!this.asked && !this.ahead.size) delete this.plot.dataset.waits;
    }
  }

  async paint() {
    const figure = this.model.get("figure");
    if (!figure.data) return;
    const moved = this.zoom.size === 0 ? moves(this.known, figure, this.ahead) : null;
    const same = this.shown === figure;
    this.ours = true;
    const ahead = moved && !same && await this.goesAhead(figure, moved);
    this.shown = figure;
    if (moved && !ahead) {
      await rescale(this.Plotly, this.plot, moved.scales);
      await move(this.Plotly, this.plot, figure, moved.traces);
    }
    if (!moved) await this.whole(structuredClone(figure));
    this.ours = false;
    this.known = ahead ? { data: this.known.data, layout: figure.layout } : figure;
    if (!ahead) this.ahead.clear();
    if (moved && (same || nothing(moved))) return; // the picture is the one that was there
    this.guess.place();
    this.count();
  }

  /** What moved goes ahead of plotly, which hears of it at rest; tells whether it did. */
  async goesAhead(figure, { traces, scales }) {
    const slides = Object.keys(scales).length > 0;
    if (slides ? !await slide(this.Plotly, this.plot, figure, scales) : !traces.length) return false;
    const moved = [...figure.data.keys()].filter((index) => slides || figure.data[index] !== this.shown.data[index]);
    if (!trail(this.plot, figure, moved)) return false;
    moved.forEach((index) => this.ahead.add(index));
    this.rest(RESTS);
    return true;
  }

  rest(times) {
    const computing = () => document.querySelector(".ex-status[data-state=computing]");
    this.resting = setTimeout(() => (times > 1 && computing() ? this.rest(times - 1) : this.redraw()), REST);
  }

  count() {
    this.plot.dataset.drawn = String(Number(this.plot.dataset.drawn) + 1);
  }

  async whole({ data, layout }) {
    const dressed = dress(layout ?? {}, this.size, palette(this.el));
    keepZoom(dressed, this.zoom, this.plot.layout);
    if (!this.listening) this.plot.textContent = ""; // what an earlier failure wrote
    await this.Plotly.react(this.plot, data, dressed, SETTINGS);
    if (!this.listening) this.listen();
    this.describe();
    this.scale();
  }

  listen() {
    this.listening = true;
    this.plot.on("plotly_relayout", (changes) => {
      if (this.ours) return;
      for (const key of Object.keys(changes)) {
        const name = key.match(/^([xy]axis\d*)\.range/)?.[1];
        if (name) this.zoom.set(name, [...this.plot.layout[name].range]);
      }
      this.guess.place();
    });
    this.plot.on("plotly_doubleclick", this.reset);
    this.plot.on("plotly_click", ({ points }) => {
      if (this.model.get("picks") && points.length) press(this.model, ["pick", points[0].x, points[0].y]);
    });
  }

  reset() {
    this.zoom.clear();
    this.renew();
  }

  resize() {
    const [width, height] = this.size;
    this.size = [this.plot.clientWidth, this.plot.clientHeight];
    const changed = this.size[0] !== width || this.size[1] !== height;
    // Anew, and whole: plotly's own resizing leaves a legend where the margin of the other size had it.
    if (changed && this.size[0] >= NARROWEST) this.renew();
  }

  remove() {
    this.alive = false;
    looked.get(this.model)?.cards.delete(this);
    clearTimeout(this.resting);
    this.ends.forEach((end) => end());
    this.Plotly?.purge(this.plot);
  }
}

export default {
  render({ model, el }) {
    const card = new Card(model);
    el.append(card.el);
    return () => card.remove();
  },
};
