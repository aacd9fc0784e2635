/* plotly.js, shared by all of the page: the server's copy, if the page's template has asked for one while Python started,
   and else the kernel's, packed, unpacked by the first chart that asks. */

const packed = { model: null, unpacking: null };

function plotly() {
  packed.unpacking ??= load(packed.model).catch((error) => {
    packed.unpacking = null; // the next chart tries again
    throw error;
  });
  return packed.unpacking;
}

async function load(model) {
  const served = await globalThis[Symbol.for("transformer-signal-explorer: plotly")]; // null where that failed
  return served ?? unpack(await received(model));
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
  const before = window.Plotly; // somebody else's copy stays theirs
  try {
    await import(url);
    return window.Plotly;
  } finally {
    window.Plotly = before;
    URL.revokeObjectURL(url);
  }
}
