/* What is new in a figure: numbers that moved on axes that may have moved too, or more than that.

   The kernel sends the difference to the figure before, with the numbers of both: `patch`. Every view of a model sees its
   one figure, which stays whole. Of a slider's move, most figures keep everything but a line and the ends of an axis.
   Such a figure is not drawn as a whole: plotly's `relayout` and `animate` take a third of the time of its `react`. What
   moves on its axes is written into the drawing, and plotly hears of it at rest: that takes a thirtieth. */

const MOVED = ["x", "y", "customdata", "hovertemplate"];
const SCALED = ["range", "nticks", "tickformat", "exponentformat", "tick0", "dtick"];
const TYPED = { f8: Float64Array, f4: Float32Array, i4: Int32Array, i2: Int16Array, i1: Int8Array, u4: Uint32Array,
  u2: Uint16Array, u1: Uint8Array };
const AT_ONCE = { transition: { duration: 0 }, frame: { duration: 0, redraw: false }, mode: "immediate" };

/** Whether two plain values are the same; what a patch has left alone is the same object. */
function same(one, other) {
  if (one === other) return true;
  if (typeof one !== "object" || typeof other !== "object" || !one || !other) return false;
  return Array.isArray(one) === Array.isArray(other) && differing(one, other).length === 0;
}

/** The names under which two objects differ. */
function differing(one, other) {
  return [...new Set([...Object.keys(one), ...Object.keys(other)])].filter((name) => !same(one[name], other[name]));
}

/** Traces and axes that moved between two figures, and traces that moved already; null if anything else is new. */
function moves(before, after, ahead = new Set()) {
  if (!before || before.data.length !== after.data.length) return null;
  const traces = [], scales = {};
  for (const [index, trace] of after.data.entries()) {
    const earlier = before.data[index], names = differing(earlier, trace);
    if (!names.length && !ahead.has(index)) continue;
    const may = (name) => MOVED.includes(name) && name in trace && name in earlier;
    if (trace.type !== "scatter" || !names.every(may)) return null;
    traces.push(index);
  }
  for (const axis of differing(before.layout, after.layout)) {
    if (axis === "meta") continue; // words, which are not drawn
    if (!/^[xy]axis\d*$/.test(axis) || !before.layout[axis] || !after.layout[axis]) return null;
    const names = differing(before.layout[axis], after.layout[axis]);
    if (!names.every((name) => SCALED.includes(name))) return null;
    for (const name of names) scales[`${axis}.${name}`] = after.layout[axis][name] ?? null;
    // Or plotly keeps to steps for good: of 1, over a thousand layers.
    if (names.includes("dtick")) scales[`${axis}.tickmode`] = null;
  }
  return { traces, scales };
}

const nothing = ({ traces, scales }) => !traces.length && !Object.keys(scales).length;

/** Moves the axes. */
const rescale = (Plotly, plot, scales) => Object.keys(scales).length && Plotly.relayout(plot, structuredClone(scales));

/** How many letters the longest tick of an axis has: its title stands beside them. */
const longest = ({ _vals = [] }) => Math.max(0, ..._vals.map(({ text }) => text.length));

/** Moves the axes, and leaves what lies on them where it was: plotly takes longer to draw that than for all else. Tells
    whether it could: ticks of another kind, and what is neither line, band nor dots, are left to plotly. */
async function slide(Plotly, plot, { data }, scales) {
  const whole = plot._fullLayout, { _basePlotModules, _visibleModules } = whole, ranges = {}, most = [];
  for (const [name, value] of Object.entries(scales)) {
    const [axis, what] = name.split(".");
    if (what === "range") ranges[name] = [...value];
    else if (what === "nticks") most.push([axis, value ?? 0]);
    else return false;
  }
  if (!Object.keys(ranges).length || data.some(({ type }) => type !== "scatter")) return false;
  const letters = longest(whole.yaxis), title = whole.yaxis.title.text;
  for (const [axis, nticks] of most) plot.layout[axis].nticks = whole[axis].nticks = nticks;
  const silent = _basePlotModules.map((drawing) => ({ ...drawing, plot() {} }));
  Object.assign(whole, { _basePlotModules: silent, _visibleModules: [] }); // what draws the traces, and styles them
  try {
    await Plotly.relayout(plot, ranges);
  } finally {
    Object.assign(whole, { _basePlotModules, _visibleModules });
  }
  // Where a range is all that changes, plotly leaves titles where they are, be it across the ticks.
  if (longest(plot._fullLayout.yaxis) !== letters) await Plotly.relayout(plot, { "yaxis.title.text": title });
  return true;
}

/** Draws the traces that moved. */
async function move(Plotly, plot, figure, traces) {
  if (!traces.length) return;
  // With all that lie above: plotly puts what it is given on top of each other, and above the others. And with all that
  // are thinned: which dots it leaves out depends on how many such traces it is given before.
  const thinned = figure.data.findIndex((trace) => trace.marker?.maxdisplayed);
  const above = [...figure.data.keys()].slice(thinned < 0 ? traces[0] : Math.min(thinned, traces[0]));
  const parts = above.map((index) => MOVED.filter((name) => name in figure.data[index])
    .map((name) => [name, figure.data[index][name]]));
  await Plotly.animate(plot, { data: structuredClone(parts.map(Object.fromEntries)), traces: above }, AT_ONCE);
}

const unpacked = new WeakMap(); // an array as it travels, to its numbers

/** The numbers of an array as it travels. */
function numbers(array) {
  if (!array.bdata) return array;
  if (!unpacked.has(array)) {
    const letters = atob(array.bdata), bytes = new Uint8Array(letters.length);
    for (let at = 0; at < letters.length; at += 1) bytes[at] = letters.charCodeAt(at);
    unpacked.set(array, new TYPED[array.dtype](bytes.buffer));
  }
  return unpacked.get(array);
}

/** Pixels to a hundredth, as plotly writes them. */
const pixels = (point) => point.map((value) => Math.round(value * 100) / 100);

/** Which points of a trace are drawn as dots: those that have a place, and of many in view every so many-th, as plotly
    chooses them: where several traces are thinned, not from the same one on. */
function asDots(plot, { index, marker }, points, { xaxis, yaxis }) {
  const most = marker.maxdisplayed;
  const before = plot._fullData.slice(0, index).filter((other) => other.visible === true);
  const thinned = before.filter((other) => other.marker?.maxdisplayed).length;
  const inView = ([x, y]) => x >= 0 && x <= xaxis._length && y >= 0 && y <= yaxis._length;
  const there = [...points.keys()].filter((at) => points[at].every(Number.isFinite) && (!most || inView(points[at])));
  const step = most ? Math.ceil(there.length / most) : 1;
  const shift = Math.round(thinned * step / 3 + Math.floor(thinned / 3) * step / 7.1);
  return there.filter((_, rank) => (rank + shift) % step === 0);
}

/** What is drawn of a trace (a line, the words on it, a band, dots), each part with its new attributes; null of any other
    trace, and where the number of parts is another. */
function places(plot, trace, full) {
  const { uid, visible, mode, fill = "none", line, text, error_y: bars, xaxis, yaxis } = full;
  if (visible !== true) return [];
  const lines = mode !== "markers", band = fill === "toself";
  if (!["lines", "lines+text", "markers"].includes(mode) || !(band || fill === "none")) return null;
  if ((lines && line.shape !== "linear") || bars?.visible) return null;
  const axes = plot._fullLayout._plots[xaxis + yaxis], x = numbers(trace.x);
  const points = Array.from(numbers(trace.y), (value, at) => [axes.xaxis.d2p(x[at]), axes.yaxis.d2p(value)]);
  const there = points.map((point) => point.every(Number.isFinite));
  const runs = [[]]; // between gaps
  points.forEach((point, at) => (there[at] ? runs.at(-1).push(point) : runs.push([])));
  const paths = runs.filter((run) => run.length).map((run) => `M${run.map(pixels).join("L")}`);
  if (band && paths.length > 1) return null;
  const dots = lines ? [] : asDots(plot, full, points, axes);
  const found = [
    [".js-line", lines ? paths.map((d) => ({ d })) : []],
    [".js-fill", band ? paths.map((d) => ({ d: `${d}Z` })) : []],
    [".textpoint text", points.filter((_, at) => mode === "lines+text" && there[at] && text[at]).map(([x, y]) => ({ x, y }))],
    [".points path", dots.map((at) => ({ transform: `translate(${pixels(points[at])})` }))],
  ].map(([name, parts]) => [[...plot.querySelectorAll(`.trace${uid} ${name}`)], parts]);
  if (found.some(([nodes, parts]) => nodes.length !== parts.length)) return null;
  return found.flatMap(([nodes, parts]) => nodes.map((node, at) => [node, parts[at]]));
}

/** Writes what moved, on axes that have moved, into the drawing; tells whether it could. */
function trail(plot, figure, traces) {
  const found = traces.map((index) => places(plot, figure.data[index], plot._fullData[index]));
  if (found.includes(null)) return false;
  for (const [node, place] of found.flat()) {
    for (const [name, value] of Object.entries(place)) node.setAttribute(name, value);
  }
  return true;
}

/** Puts the newest patch on a model's figure, unless another view did; asks for the whole where one before it is missing. */
function taken(model) {
  const { start, end, changes } = model.get("patch");
  if (end === undefined || end === model.get("number")) return;
  if (start !== model.get("number")) {
    model.send("whole");
    return;
  }
  model.set("number", end); // first: the views hear of the figure
  model.set("figure", patched(model.get("figure"), changes));
}

/** A figure with changes, each a path and the value there, or a path alone where something went; the rest is shared. */
function patched(figure, changes) {
  return changes.reduce((found, [path, ...value]) => replaced(found, path, value), figure);
}

function replaced(whole, [name, ...rest], value) {
  if (name === undefined) return value[0];
  const copy = Array.isArray(whole) ? [...whole] : { ...whole };
  if (rest.length) copy[name] = replaced(whole[name], rest, value);
  else if (value.length) [copy[name]] = value;
  else delete copy[name];
  return copy;
}
