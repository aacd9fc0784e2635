/* Loads plotly.js once for the whole page.

   The server's copy comes first: the template of a served page requests it while Python starts. It is the part of
   plotly that draws flat axes, all that the page needs. The kernel sends a compressed copy of the whole, which is
   decompressed, where there is no server, or where a person's own figure needs more. */

const FLAT_TRACES = ["bar", "box", "contour", "heatmap", "histogram", "histogram2d", "histogram2dcontour", "image", "pie",
  "scatter", "scatterternary", "violin"];
const plotlySource = { model: null, served: null, sent: null };

/** Plotly, with all that a figure needs. */
async function plotlyFor({ data }) {
  const { model } = plotlySource;
  const isFlat = data.every(({ type = "scatter" }) => FLAT_TRACES.includes(type));
  const served = isFlat && await (plotlySource.served ??= servedPlotly(model));
  return served || (plotlySource.sent ??= fromKernel(model).catch((error) => {
    plotlySource.sent = null; // the next chart tries again
    throw error;
  }));
}

/** The server's copy, or null where there is none. */
const servedPlotly = (model) => (globalThis[Symbol.for("transformer-signal-explorer: plotly")]
  ?? (model.get("plotly").byteLength ? null : fromServer(model.get("plotly_path"))));

/** The copy of the notebook server, or null: its environment may be another than the kernel's. */
async function fromServer(path) {
  try {
    const { baseUrl } = JSON.parse(document.getElementById("jupyter-config-data").textContent);
    return await importPlotly(new URL(path, new URL(baseUrl, location.origin)).href);
  } catch {
    return null;
  }
}

/** The kernel's compressed copy. It is requested where the kernel left it out in favor of the server's copy. */
async function fromKernel(model) {
  const packed = model.get("plotly").byteLength ? model.get("plotly") : await new Promise((resolve) => {
    model.get("layout").on("msg:custom", (_, [answer]) => resolve(answer)); // see `runtime.tell`
    model.send("plotly");
  });
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const source = await new Response(stream, { headers: { "Content-Type": "text/javascript" } }).blob();
  const url = URL.createObjectURL(source);
  try {
    return await importPlotly(url);
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** Runs the script and returns its `Plotly`. A `window.Plotly` of another extension is restored. */
async function importPlotly(url) {
  const other = window["Plotly"];
  try {
    await import(url);
    return window["Plotly"];
  } finally {
    window["Plotly"] = other;
  }
}
