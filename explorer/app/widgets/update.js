/* Draws the difference between a chart's figure and the figure before, where that is faster than a whole drawing.

   A dragged slider mostly moves some lines and the ends of an axis. Plotly's `relayout` and `animate` draw that in a
   third of the time of its `react`. */

const MOVABLE = ["x", "y", "customdata", "hovertemplate"]; // what `animate` can change of a trace
const SCALABLE = ["range", "nticks", "tickformat", "exponentformat", "tick0", "dtick"]; // and `relayout` of an axis
const IMMEDIATE = { transition: { duration: 0 }, frame: { duration: 0, redraw: false }, mode: "immediate" };

/** Whether two plain values are equal. */
function same(left, right) {
  if (left === right) return true;
  if (typeof left !== "object" || typeof right !== "object" || !left || !right) return false;
  return Array.isArray(left) === Array.isArray(right) && differing(left, right).length === 0;
}

/** The keys under which two objects differ. */
function differing(left, right) {
  return [...new Set([...Object.keys(left), ...Object.keys(right)])].filter((key) => !same(left[key], right[key]));
}

/** The traces and axes that moved between two figures, or null if anything else changed. */
function moves(before, after) {
  if (!before || before.data.length !== after.data.length) return null;
  const traces = [], scales = {};
  for (const [index, trace] of after.data.entries()) {
    const earlier = before.data[index], names = differing(earlier, trace);
    if (!names.length) continue;
    const isMovable = (name) => MOVABLE.includes(name) && name in trace && name in earlier;
    if (trace.type !== "scatter" || !names.every(isMovable)) return null;
    traces.push(index);
  }
  for (const axis of differing(before.layout, after.layout)) {
    if (axis === "meta") continue; // texts that are not drawn
    if (!/^[xy]axis\d*$/.test(axis) || !before.layout[axis] || !after.layout[axis]) return null;
    const names = differing(before.layout[axis], after.layout[axis]);
    if (!names.every((name) => SCALABLE.includes(name))) return null;
    for (const name of names) scales[`${axis}.${name}`] = after.layout[axis][name] ?? null;
    // Without a reset, plotly would keep a given step for good: a step of 1 over a thousand layers.
    if (names.includes("dtick")) scales[`${axis}.tickmode`] = null;
  }
  return { traces, scales };
}

const nothingMoved = ({ traces, scales }) => !traces.length && !Object.keys(scales).length;

/** Moves the axes by plotly. */
const rescale = (Plotly, plot, scales) => Object.keys(scales).length && Plotly.relayout(plot, structuredClone(scales));

/** Moves traces by plotly.

    Plotly puts the traces that it animates above all others, so the traces above a moved one are animated too. The dots
    that plotly leaves out of a trace depend on the thinned traces before it in the call, so these are animated too. */
async function move(Plotly, plot, figure, traces) {
  if (!traces.length) return;
  const firstThinned = figure.data.findIndex((trace) => trace.marker?.maxdisplayed);
  const animated = [...figure.data.keys()].slice(firstThinned < 0 ? traces[0] : Math.min(firstThinned, traces[0]));
  const parts = animated.map((index) => MOVABLE.filter((name) => name in figure.data[index])
    .map((name) => [name, figure.data[index][name]]));
  await Plotly.animate(plot, { data: structuredClone(parts.map(Object.fromEntries)), traces: animated }, IMMEDIATE);
}
