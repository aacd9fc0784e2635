/* plotly.js, which came packed with this script: unpacked by the first chart that asks, shared by all of the page. */

const packed = { plotly: null, unpacking: null };

function plotly() {
  packed.unpacking ??= unpack(packed.plotly).catch((error) => {
    packed.unpacking = null; // the next chart tries again
    throw error;
  });
  return packed.unpacking;
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
