/* plotly.js, shared by all of the page: the server's copy, for which a served page's template has asked while Python
   started, and else the kernel's, packed, unpacked by the first chart that asks. */

const packed = { model: null, unpacking: null };

function plotly() {
  packed.unpacking ??= load(packed.model).catch((error) => {
    packed.unpacking = null; // the next chart tries again
    throw error;
  });
  return packed.unpacking;
}

async function load(model) {
  const early = globalThis[Symbol.for("transformer-signal-explorer: plotly")]; // null in the end, where that failed
  const served = await (early ?? (model.get("plotly").byteLength ? null : fromServer(model.get("plotly_path"))));
  return served ?? unpack(await received(model));
}

/** The copy of the notebook server, or null: its environment may be another than the kernel's. */
async function fromServer(path) {
  try {
    const { baseUrl } = JSON.parse(document.getElementById("jupyter-config-data").textContent);
    return await evaluated(new URL(path, new URL(baseUrl, location.origin)).href);
  } catch {
    return null;
  }
}

/** The kernel's copy: there from the start, or, where it should have come from the server, after asking. */
function received(model) {
  return new Promise((resolve) => {
    const bytes = () => model.get("plotly");
    if (bytes()?.byteLength) {
      resolve(bytes());
      return;
    }
    model.on("change:plotly", () => resolve(bytes()));
    model.send("plotly");
  });
}

async function unpack(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const source = await new Response(stream).blob();
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  try {
    return await evaluated(url);
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** What the script defines; somebody else's copy stays theirs. */
async function evaluated(url) {
  const before = window.Plotly;
  try {
    await import(url);
    return window.Plotly;
  } finally {
    window.Plotly = before;
  }
}
