/* One chart: a card whose plot is redrawn from the whole `figure` trait, by the page's only copy of plotly.js.

   The front end only reads traits. Redraws never queue: while one runs, newer figures replace each other, and the last
   is drawn next. A plot without a size (in a closed tab), or too narrow for its axes, waits until it has room. Colors
   come from the page's CSS variables at each draw; figures carry none of their own but the hues of their data. */

const NARROWEST = 60; // pixels; below, plotly would place words at minus infinity
const COPIES = Symbol.for("transformer-signal-explorer/plotly");

/** The page's plotly.js of one version: unpacked by the first chart that asks, shared by all. */
async function plotly(model) {
  const reference = model.get("runtime").replace("IPY_MODEL_", "");
  const runtime = await model.widget_manager.get_model(reference);
  const copies = (globalThis[COPIES] ??= new Map());
  const version = runtime.get("version");
  if (!copies.has(version)) copies.set(version, unpack(runtime.get("plotly")));
  return copies.get(version).catch((error) => {
    copies.delete(version); // the next chart tries again
    throw error;
  });
}

async function unpack(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const source = await new Response(stream).blob();
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  const before = window.Plotly; // somebody else's copy stays theirs
  try {
    await import(url);
    return window.Plotly;
  } finally {
    window.Plotly = before;
    URL.revokeObjectURL(url);
  }
}

/** What plotly may do: nothing that leaves this page. */
function settings(Plotly, card, title, reset) {
  const save = (format, icon) => ({
    name: `save-${format}`,
    title: `Save as ${format.toUpperCase()}`,
    icon,
    click: (plot) => download(Plotly, plot, card, title(), format),
  });
  const home = { name: "reset", title: "Reset zoom", icon: Plotly.Icons.home, click: reset };
  return {
    responsive: true,
    displaylogo: false,
    displayModeBar: "hover",
    doubleClick: false, // plotly would go back to the first figure it ever drew, not to this one
    showSendToCloud: false,
    plotlyServerURL: "",
    typesetMath: false,
    modeBarButtons: [["zoomIn2d", "zoomOut2d", home], [save("png", Plotly.Icons.camera), save("svg", Plotly.Icons.disk)]],
  };
}

/** The plot as it stands, zoom included, on the card's own paper and under its title. */
function download(Plotly, plot, card, title, format) {
  const { surface, text } = palette(card);
  const margin = { ...plot.layout.margin, t: (plot.layout.margin?.t ?? 10) + 28 };
  const heading = { text: title, x: 0.01, xanchor: "left", y: 0.99, yanchor: "top", font: { size: 15, color: text } };
  const layout = { ...plot.layout, margin, paper_bgcolor: surface, title: heading };
  const filename = title.toLowerCase().replace(/[^a-z0-9]+/g, "-") || "chart";
  const size = { width: plot.clientWidth, height: plot.clientHeight + 28, scale: 2 };
  return Plotly.downloadImage({ data: plot.data, layout }, { format, filename, ...size });
}

function palette(card) {
  const style = getComputedStyle(card);
  const read = (name) => style.getPropertyValue(`--chart-${name}`).trim();
  const [surface, border, text, muted, grid] = ["surface", "border", "text", "muted", "grid"].map(read);
  return { surface, border, text, muted, grid, family: style.fontFamily };
}

const axes = (layout) => Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key));

/** Puts a person's zoom on a new layout, unless the new data lie elsewhere. Forgets it in that case. */
function keepZoom(layout, zoom) {
  const ends = (range) => [Math.min(...range), Math.max(...range)];
  const apart = axes(layout).some((name) => {
    if (!zoom.has(name) || !layout[name].range) return false;
    const [[low, high], [from, to]] = [ends(layout[name].range), ends(zoom.get(name))];
    return to <= low || from >= high;
  });
  if (apart) zoom.clear();
  for (const [name, range] of zoom) Object.assign((layout[name] ??= {}), { range, autorange: false });
}

/** Gives a bare layout the page's colors; what the figure itself decided stays. */
function dress(layout, { surface, border, text, muted, grid, family }) {
  layout.autosize = true;
  layout.uirevision = "kept"; // series hidden in a legend stay hidden
  layout.font = { family, size: 12, color: muted, ...layout.font };
  layout.hoverlabel = { bgcolor: surface, bordercolor: border, align: "left", font: { color: text, family, size: 12 } };
  layout.modebar = { bgcolor: surface, color: muted, activecolor: text };
  for (const name of axes(layout)) {
    const uirevision = performance.now(); // ranges are ours, see keepZoom
    layout[name] = { gridcolor: grid, zerolinecolor: grid, linecolor: border, ...layout[name], uirevision };
  }
  return layout;
}

function element(tag, name, ...children) {
  const made = document.createElement(tag);
  made.className = name;
  made.append(...children);
  return made;
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

const TEXTS = "change:title change:caption change:badge change:badge_tone change:description change:stale";

class Card {
  constructor(model) {
    this.model = model;
    this.alive = true;
    this.wanted = true; // a figure, or new colors, not drawn yet
    this.busy = false;
    this.listening = false;
    this.width = 0;
    this.zoom = new Map(); // axis to the range that a person chose
    this.build();
    this.write = this.write.bind(this);
    this.redraw = this.redraw.bind(this);
    this.reset = this.reset.bind(this);
    model.on(TEXTS, this.write);
    model.on("change:figure", this.redraw);
    this.stopColors = onColors(this.redraw);
    this.sized = new ResizeObserver(() => this.resize());
    this.sized.observe(this.plot);
    this.write();
  }

  build() {
    this.title = element("h3", "ex-chart-title");
    this.stale = element("span", "ex-chart-stale", "stale");
    this.badge = element("span", "ex-chart-badge");
    this.caption = element("p", "ex-chart-caption");
    this.plot = element("div", "ex-chart-plot");
    this.plot.dataset.drawn = "0";
    const header = element("div", "ex-chart-header", this.title, this.stale, this.badge);
    const words = element("figcaption", "ex-chart-words", header, this.caption);
    this.el = element("figure", "ex-chart", words, this.plot);
  }

  write() {
    const get = (name) => this.model.get(name);
    this.title.textContent = get("title");
    write(this.caption, get("caption"));
    write(this.badge, get("badge"));
    this.badge.hidden = !get("badge");
    this.badge.dataset.tone = get("badge_tone");
    this.stale.hidden = !get("stale");
    this.el.classList.toggle("ex-chart-is-stale", get("stale"));
    this.describe();
  }

  /** The picture is the drawing, not the buttons beside it: those stay within reach. */
  describe() {
    const [drawing, ...layers] = this.plot.querySelectorAll(".main-svg");
    drawing?.setAttribute("role", "img");
    drawing?.setAttribute("aria-label", this.model.get("description") || this.model.get("title"));
    for (const layer of layers) layer.setAttribute("aria-hidden", "true");
  }

  redraw() {
    this.wanted = true;
    this.draw();
  }

  async draw() {
    if (this.busy) return;
    this.busy = true;
    try {
      this.Plotly ??= await plotly(this.model);
      while (this.alive && this.wanted && this.plot.clientWidth >= NARROWEST) {
        this.wanted = false;
        await this.paint();
      }
    } catch (error) {
      this.Plotly?.purge(this.plot);
      this.listening = false;
      this.plot.textContent = `This chart could not be drawn: ${error.message}`;
      console.error(error);
    } finally {
      this.busy = false;
    }
  }

  async paint() {
    const figure = structuredClone(this.model.get("figure"));
    if (!figure.data) return;
    const layout = dress(figure.layout ?? {}, palette(this.el));
    keepZoom(layout, this.zoom);
    // Another config object would make plotly start afresh.
    this.config ??= settings(this.Plotly, this.el, () => this.model.get("title"), this.reset);
    if (!this.listening) this.plot.textContent = ""; // what an earlier failure wrote
    await this.Plotly.react(this.plot, figure.data, layout, this.config);
    if (!this.listening) this.listen();
    this.describe();
    this.plot.dataset.drawn = String(Number(this.plot.dataset.drawn) + 1);
  }

  listen() {
    this.listening = true;
    this.plot.on("plotly_relayout", (changes) => {
      for (const key of Object.keys(changes)) {
        const name = key.match(/^([xy]axis\d*)\.range/)?.[1];
        if (name) this.zoom.set(name, [...this.plot.layout[name].range]);
      }
    });
    this.plot.on("plotly_doubleclick", this.reset);
  }

  reset() {
    this.zoom.clear();
    this.redraw();
  }

  resize() {
    const before = this.width;
    this.width = this.plot.clientWidth;
    if (this.wanted) this.draw();
    else if (this.width >= NARROWEST && this.width !== before) this.Plotly.Plots.resize(this.plot)?.catch(this.redraw);
  }

  remove() {
    this.alive = false;
    this.stopColors();
    this.sized.disconnect();
    this.model.off(TEXTS, this.write);
    this.model.off("change:figure", this.redraw);
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
