/* One chart: a card whose plot shows the `figure` trait, drawn by the page's only copy of plotly.js.

   Drawings never queue: a new figure waits for the next frame of the browser, and a newer one replaces it. Where only
   numbers changed, the rest of the drawing stays. While a slider moves, the small pictures wait until it rests.

   A plot without a size (in a closed tab), or too narrow for its axes, is drawn once it has room. A plot that is
   not on the screen is drawn when the browser is idle. Colors come from the page's CSS variables; a figure itself
   only brings the hues of its data. */

const NARROWEST_PLOT = 60; // pixels; on a narrower plot, plotly would place words at minus infinity
const SMALLEST_CHART = 190; // pixels of height; below, a chart is a picture
const LABEL_ROOM = 24; // pixels a picture has for each label of the axis across

/** Plotly's settings: it sends nothing from this page, and adds no buttons or words of its own to the drawing. */
const SETTINGS = {
  displaylogo: false,
  displayModeBar: false,
  doubleClick: false, // plotly would return to the first figure that it ever drew, not to this one
  showTips: false,
  showSendToCloud: false,
  plotlyServerURL: "",
  typesetMath: false,
};

const axisNames = (layout) => Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key));

/** Applies a person's zoom to a new layout, or forgets it if the new data lie elsewhere or an axis' title changes. */
function keepZoom(layout, zoom, previousLayout) {
  const ends = (range) => [Math.min(...range), Math.max(...range)];
  const isApart = axisNames(layout).some((name) => {
    if (!zoom.has(name) || !layout[name].range) return false;
    const [[low, high], [from, to]] = [ends(layout[name].range), ends(zoom.get(name))];
    return to <= low || from >= high || layout[name].title?.text !== previousLayout[name].title?.text;
  });
  if (isApart) zoom.clear();
  for (const [name, range] of zoom) Object.assign((layout[name] ??= {}), { range, autorange: false });
}

/** Gives a bare layout the page's colors. Settings of the figure itself stay. */
function dress(layout, size, { surface, border, text, muted, grid, family, size: letters }) {
  Object.assign(layout, { autosize: false, width: size[0], height: size[1] }); // or plotly would measure its box at every change
  layout.uirevision = "kept"; // series that were hidden in a legend stay hidden
  layout.font = { family, color: muted, ...layout.font, size: letters };
  layout.hoverlabel = { bgcolor: surface, bordercolor: border, align: "left", font: { color: text, family, size: letters } };
  for (const name of axisNames(layout)) {
    const uirevision = performance.now(); // keeps plotly from restoring ranges, which `keepZoom` does
    const colors = { gridcolor: grid, zerolinecolor: grid, linecolor: border };
    // Labels have room. To hide labels that overflow, plotly would measure each label at every change.
    layout[name] = { ...colors, ticklabeloverflow: "allow", ...layout[name], uirevision };
  }
  return layout;
}

/** Takes away what a small picture has no room for: titles of axes and all that names series, colors and levels. */
function simplify(data, layout) {
  const margin = { l: 46, r: 10, t: 8, b: 22 }; // room for 10⁻³²
  Object.assign(layout, { title: undefined, showlegend: false, margin });
  layout.font.size = 12;
  for (const name of axisNames(layout)) layout[name].title = undefined;
  const across = layout.xaxis ?? {}, [from, to] = across.range ?? []; // a figure of a person's own may have neither
  const most = Math.floor((layout.width - margin.l - margin.r) / LABEL_ROOM);
  if (!(to - from <= most * across.dtick)) delete across.dtick;
  across.nticks = Math.min(across.nticks ?? most, most);
  for (const trace of data) {
    if (trace.type === "heatmap") trace.showscale = false;
    if (/lines.*text/.test(trace.mode)) trace.text = []; // words at a level or an upright would lie over data and ticks
  }
}

/** Calls back when the browser is idle. */
const whenIdle = (callback) => (
  window.requestIdleCallback ? requestIdleCallback(callback, { timeout: 1000 }) : setTimeout(callback));

const printMedia = window.matchMedia("print");

/** Calls back when the page is about to be printed. Returns a function that stops. */
const onPrint = (callback) => listen(printMedia, "change", () => printMedia.matches && callback());

/** Calls back whenever the page may have changed its colors. Returns a function that stops. */
function onColors(callback) {
  const theme = new MutationObserver(callback);
  theme.observe(document.body, { // the notebook's, and what is chosen in the page's menu
    attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "data-theme"], subtree: true,
  });
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  return callAll([() => theme.disconnect(), listen(dark, "change", callback)]);
}

const TEXTS = "title caption why lesson source badge badge_tone badge_rule stale ahead designs";

class Card {
  constructor(model) {
    this.model = model;
    this.Plotly = null; // until something is to be drawn
    this.isAlive = true;
    this.needsDrawing = true; // for a new figure or new colors
    this.isDrawing = false;
    this.isListening = false; // to plotly's events, which it has once it has drawn the plot
    this.isScheduled = false; // to be drawn at the next frame
    this.changesAxes = false; // whether a change of axes is by this card and not by a person
    this.drawnFigure = null; // in the page's present colors and size
    this.size = [0, 0];
    this.zoom = new Map(); // the name of an axis to the range that a person chose
    this.build();
    this.guess = new Guess(model, this.plot, this.el);
    this.redraw = this.redraw.bind(this);
    this.resetZoom = this.resetZoom.bind(this);
    this.isSeen = true; // as far as the kernel knows
    this.isOnScreen = false;
    this.intersections = new IntersectionObserver((entries) => {
      this.isOnScreen = entries.at(-1).isIntersecting;
      this.reportVisibility();
      if (this.isOnScreen) this.update();
    });
    this.intersections.observe(this.plot);
    this.resizes = new ResizeObserver(() => this.resize());
    this.resizes.observe(this.plot);
    this.stop = callAll([
      follow(model, TEXTS, () => this.write()), follow(model, "title description", () => this.describe()),
      follow(model, "figure stale", () => this.update()), onColors(this.redraw), onPrint(() => this.draw()),
      listenInPanel(this.plot, "ex-layer", ({ detail }) => this.mark(detail)),
      () => this.resizes.disconnect(), () => this.intersections.disconnect(), this.guess.end,
    ]);
  }

  build() {
    this.title = make("h3", { class: "ex-chart-title" });
    this.tools = make("div", { class: "ex-chart-tools", role: "group" }, ...this.buttons());
    this.stale = make("span", { class: "ex-chart-stale" }, "stale");
    this.badge = make("span", { class: "ex-chart-badge" });
    this.caption = make("p", { class: "ex-chart-caption" });
    this.why = make("details", { class: "ex-chart-why" });
    this.legend = make("p", { class: "ex-chart-legend" });
    this.plot = make("div", { class: "ex-chart-plot", "data-drawn": 0 });
    const header = make("div", { class: "ex-chart-header" }, this.title, this.stale, this.badge);
    const words = [header, this.caption, this.why, this.tools, this.legend];
    this.layerMark = make("div", { class: "ex-chart-layer", hidden: true });
    this.el = make("figure", { class: "ex-chart" },
      make("figcaption", { class: "ex-chart-words" }, ...words), this.plot, this.layerMark);
    this.plot.addEventListener("click", () => this.isPicture() && this.toggleSize());
    // In plotly, a touch that scrolls the page would zoom by accident. A tap still arrives as mouse events.
    this.plot.addEventListener("touchstart", (event) => event.stopPropagation(), { capture: true });
  }

  /** Whether the axis across is the depth, by its title. */
  isByDepth() {
    return /^(depth|layer)/.test(this.model.get("figure").layout?.xaxis?.title?.text);
  }

  /** Marks the layer under the pointer, in whatever chart of the panel it is; `null` takes the mark away. */
  mark(depth) {
    this.layerMark.hidden = depth === null || !this.isListening || !this.isByDepth();
    if (this.layerMark.hidden) return;
    const { offsetLeft, offsetTop, offsetHeight } = this.plot, { from, to } = this.guess.scale("xaxis");
    const across = offsetLeft + this.guess.pixel("xaxis", depth);
    this.layerMark.hidden = depth < from || depth > to; // a person has zoomed in elsewhere
    Object.assign(this.layerMark.style, { left: `${across}px`, top: `${offsetTop}px`, height: `${offsetHeight}px` });
  }

  /** Whether there is no room for the titles of axes. */
  isSmall() {
    return this.size[1] < SMALLEST_CHART;
  }

  /** Whether the chart is one of the small pictures that can be enlarged. */
  isPicture() {
    return this.isSmall() && this.tools.firstChild.checkVisibility();
  }

  buttons() {
    const whenDrawn = (action) => (choice) => this.isListening && action(choice);
    const zoomButtons = [
      ["+", "Zoom in", () => this.magnify(0.5)],
      ["−", "Zoom out", () => this.magnify(2)],
      ["Reset", "Reset zoom", () => this.resetZoom()],
      ["⤢", "Full screen", () => (document.fullscreenElement ? document.exitFullscreen() : this.el.requestFullscreen())],
    ].map(([label, title, act]) => chartButton(label, title, whenDrawn(act)));
    const enlarge = button("Enlarge", "ex-chart-tool ex-enlarge", () => this.toggleSize(), {
      title: "Large or small", "aria-pressed": "false",
    });
    const [saver, menu] = saveMenu({
      PNG: whenDrawn((size) => this.save("png", size)), SVG: whenDrawn((size) => this.save("svg", size)),
      PDF: whenDrawn((size) => this.save("pdf", size)), HTML: () => this.model.act("html"),
    });
    makeToolbar([...zoomButtons, saver]);
    return [enlarge, ...zoomButtons, saver, menu];
  }

  /** Makes a chart large that the page shows as a small picture, or small again. */
  toggleSize() {
    const isLarge = this.el.closest(".ex-cell").classList.toggle("ex-large"), enlarge = this.tools.firstChild;
    enlarge.setAttribute("aria-pressed", String(isLarge));
    enlarge.textContent = isLarge ? "Shrink" : "Enlarge";
  }

  /** Multiplies the range of each axis about its middle; a factor below 1 zooms in. */
  magnify(factor) {
    const changes = {};
    for (const name of axisNames(this.plot.layout)) {
      const [low, high] = this.plot.layout[name].range;
      const [middle, half] = [(low + high) / 2, ((high - low) / 2) * factor];
      changes[`${name}.range`] = [middle - half, middle + half];
    }
    this.Plotly.relayout(this.plot, changes);
  }

  /** Saves the chart in a format and one of `SIZES`, by its name. */
  save(format, sizeName) {
    const get = (name) => this.model.get(name), size = SIZES[sizeName];
    const words = { title: get("title"), captions: [get("caption"), get("marks")].filter(Boolean), designs: get("designs") };
    const picture = size
      ? paperPicture(this.dressed({ ...PAPER, size: size.letters }), words, size)
      : pagePicture(this.dressed(), this.plot, this.el, words);
    savePicture(this.Plotly, picture, words.title, format, size ? 300 / 96 : 2); // 300 dots an inch
  }

  /** A copy of the figure with the page's colors, or others, and a person's zoom. */
  dressed(look = palette(this.el)) {
    const { data, layout = {} } = structuredClone(this.model.get("figure"));
    keepZoom(dress(layout, this.size, look), this.zoom, this.plot.layout);
    return { data, layout };
  }

  write() {
    const get = (name) => this.model.get(name);
    setText(this.title, get("title"));
    write(this.caption, get("caption"), explained);
    writeWhy(this.why, { why: get("why"), lesson: get("lesson"), source: get("source") });
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

  /** Lists the designs by name where there are several, because the list of pins may be far above. */
  writeLegend(designs) {
    this.legend.hidden = designs.length < 2;
    const names = JSON.stringify(designs.map(({ about, ...marks }) => marks));
    if (designs.length > 1) write(this.legend, names, () => designs.map((design) => (
      make("span", {}, swatch(design).svg, ...typeset(design.name)))));
  }

  /** Describes the drawing to screen readers as an image. The buttons beside it are not part of the image. */
  describe() {
    const [drawing, ...layers] = this.plot.querySelectorAll(".main-svg");
    const label = this.model.get("description") || this.model.get("title");
    if (drawing) setAttributes(drawing, { role: "img", "aria-label": label });
    for (const layer of layers) layer.setAttribute("aria-hidden", "true");
  }

  /** Gives the drawing a view box, by which it fits the width of printed paper. */
  scale() {
    const { width, height } = this.plot.layout;
    const viewBox = `0 0 ${width} ${height}`;
    for (const layer of this.plot.querySelectorAll(".main-svg")) layer.setAttribute("viewBox", viewBox);
    this.plot.style.setProperty("--chart-shape", `${width} / ${height}`);
  }

  /** Tells the kernel whether the chart is to follow a slider. A trait would send the figure along with it. */
  reportVisibility() {
    const isSeen = this.isOnScreen && !this.isPicture();
    if (isSeen === this.isSeen) return;
    this.isSeen = isSeen;
    try {
      this.model.send(["seen", isSeen]);
    } catch {
      // JupyterLab leaves the charts of a kernel that has ended on the page; no kernel is left to receive this
    }
  }

  /** Draws the model's figure if it is another one than the drawn one. */
  update() {
    if (this.model.get("figure") !== this.drawnFigure) this.schedule();
  }

  /** Draws at the next frame. The kernel is answered before, and makes the next figure while this one is drawn. */
  schedule() {
    this.needsDrawing = true;
    if (this.isScheduled || !this.canDraw()) return;
    this.isScheduled = true;
    this.plot.dataset.waits = ""; // for tests and other programs that watch the page, until it is drawn
    const atNextFrame = this.isOnScreen ? requestAnimationFrame : whenIdle;
    atNextFrame(() => {
      this.isScheduled = false;
      this.draw();
    });
  }

  /** Draws the figure as a whole. */
  redraw() {
    this.drawnFigure = null;
    this.schedule();
  }

  /** Whether the plot has room. While figures change, a picture or a plot off the screen keeps the one that it has. */
  canDraw() {
    const isWanted = (this.isOnScreen && (!this.isPicture() || !this.drawnFigure)) || !this.model.get("stale")
      || printMedia.matches;
    return isWanted && this.size[0] >= NARROWEST_PLOT;
  }

  async draw() {
    if (this.isDrawing) return;
    this.isDrawing = true;
    try {
      while (this.isAlive && this.needsDrawing && this.canDraw()) {
        this.needsDrawing = false;
        await this.paint();
      }
    } catch (error) {
      this.clear();
      this.plot.textContent = `This chart could not be drawn: ${error.message}`;
      console.error(error);
    } finally {
      this.isDrawing = this.changesAxes = false;
      if (!this.isScheduled) delete this.plot.dataset.waits;
    }
  }

  /** Removes the drawing. */
  clear() {
    this.Plotly?.purge(this.plot);
    this.isListening = false;
    this.drawnFigure = null;
  }

  /** Draws the figure by plotly's partial updates where they suffice, or as a whole. */
  async paint() {
    const figure = this.model.get("figure");
    if (!figure.data) return;
    const Plotly = await plotlyFor(figure);
    if (this.Plotly !== Plotly) this.clear(); // what one copy of plotly has drawn, another does not know
    this.Plotly = Plotly;
    const moved = this.zoom.size === 0 && !this.isPicture() ? moves(this.drawnFigure, figure) : null;
    this.changesAxes = true;
    this.drawnFigure = figure; // before it is, for a new size or new colors meanwhile ask for another drawing
    if (moved) {
      await rescale(this.Plotly, this.plot, moved.scales);
      await move(this.Plotly, this.plot, figure, moved.traces);
    } else {
      await this.drawWhole();
    }
    this.changesAxes = false;
    if (moved && nothingMoved(moved)) return; // the picture is the same as before
    this.guess.place();
    this.plot.dataset.drawn = String(Number(this.plot.dataset.drawn) + 1);
  }

  async drawWhole() {
    const { data, layout } = this.dressed();
    if (this.isSmall()) simplify(data, layout);
    if (!this.isListening) this.plot.textContent = ""; // removes the message of an earlier failure
    await this.Plotly.react(this.plot, data, layout, SETTINGS);
    if (!this.isListening) this.listen();
    this.describe();
    this.scale();
  }

  listen() {
    this.isListening = true;
    this.plot.on("plotly_relayout", (changes) => {
      if (this.changesAxes) return;
      for (const key of Object.keys(changes)) {
        const name = key.match(/^([xy]axis\d*)\.range/)?.[1];
        if (name) this.zoom.set(name, [...this.plot.layout[name].range]);
      }
      this.guess.place();
    });
    this.plot.on("plotly_doubleclick", this.resetZoom);
    const point = (depth) => this.isByDepth() && this.el.dispatchEvent(
      new CustomEvent("ex-layer", { bubbles: true, detail: depth }));
    this.plot.on("plotly_hover", ({ points }) => points.length && point(points[0].x));
    this.plot.on("plotly_unhover", () => point(null));
    this.plot.on("plotly_click", ({ points }) => {
      if (this.model.get("picks") && points.length) this.model.act(["pick", points[0].x, points[0].y]);
    });
  }

  resetZoom() {
    this.zoom.clear();
    this.redraw();
  }

  resize() {
    const earlierSize = String(this.size);
    this.size = [this.plot.clientWidth, this.plot.clientHeight];
    // Plotly's own resizing would leave a legend where the margin of the earlier size had it.
    if (String(this.size) === earlierSize) return;
    this.reportVisibility();
    if (this.size[0] >= NARROWEST_PLOT) this.redraw();
  }

  remove() {
    this.isAlive = false;
    this.stop();
    this.Plotly?.purge(this.plot);
  }
}

export function chart(model, el) {
  const card = new Card(model);
  el.append(card.el);
  return () => card.remove();
}
