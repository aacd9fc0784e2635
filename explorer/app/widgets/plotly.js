/* Loads plotly.js once for the whole page.

   The server's copy comes first: the template of a served page requests it while Python starts. Elsewhere the
   kernel sends a compressed copy, which is decompressed for the first chart. */

const plotlySource = { model: null, loading: null };

function plotly() {
  plotlySource.loading ??= loadPlotly(plotlySource.model).catch((error) => {
    plotlySource.loading = null; // the next chart tries again
    throw error;
  });
  return plotlySource.loading;
}

async function loadPlotly(model) {
  const early = globalThis[Symbol.for("transformer-signal-explorer: plotly")]; // resolves to null where it failed
  const served = await (early ?? (model.get("plotly").byteLength ? null : fromServer(model.get("plotly_path"))));
  return served ?? decompress(await fromKernel(model));
}

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
  const packed = model.get("plotly");
  if (packed.byteLength) return packed;
  return new Promise((resolve) => {
    model.get("layout").on("msg:custom", (_, [answer]) => resolve(answer)); // see `runtime.tell`
    model.send("plotly");
  });
}

async function decompress(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const source = await new Response(stream).blob();
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
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
