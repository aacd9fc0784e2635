/* Draws the difference between a chart's figure and the figure before, where that is faster than a whole drawing.

   The kernel sends the difference as a patch between two numbered figures. All views of a model share its one
   figure, which stays complete. A dragged slider mostly moves some lines and the ends of an axis. Plotly's
   `relayout` and `animate` draw that in a third of the time of its `react`. Writing new positions into the drawing
   takes a thirtieth; plotly is told of them when the slider rests. */

const MOVABLE = ["x", "y", "customdata", "hovertemplate"]; // what `animate` can change of a trace
const SCALABLE = ["range", "nticks", "tickformat", "exponentformat", "tick0", "dtick"]; // and `relayout` of an axis
const ARRAY_TYPES = { f8: Float64Array, f4: Float32Array, i4: Int32Array, i2: Int16Array, i1: Int8Array,
  u4: Uint32Array, u2: Uint16Array, u1: Uint8Array };
const IMMEDIATE = { transition: { duration: 0 }, frame: { duration: 0, redraw: false }, mode: "immediate" };

/** Whether two plain values are equal. Objects that a patch did not touch are identical, and cheap to compare. */
function same(left, right) {
  if (left === right) return true;
  if (typeof left !== "object" || typeof right !== "object" || !left || !right) return false;
  return Array.isArray(left) === Array.isArray(right) && differing(left, right).length === 0;
}

/** The keys under which two objects differ. */
function differing(left, right) {
  return [...new Set([...Object.keys(left), ...Object.keys(right)])].filter((key) => !same(left[key], right[key]));
}

/** The traces and axes that moved between two figures, or null if anything else changed.

    `pending` holds the indices of traces whose positions plotly does not know yet; they count as moved. */
function moves(before, after, pending = new Set()) {
  if (!before || before.data.length !== after.data.length) return null;
  const traces = [], scales = {};
  for (const [index, trace] of after.data.entries()) {
    const earlier = before.data[index], names = differing(earlier, trace);
    if (!names.length && !pending.has(index)) continue;
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

/** The number of letters of an axis' longest tick label. The axis' title stands beside the labels. */
const longestTick = ({ _vals = [] }) => Math.max(0, ..._vals.map(({ text }) => text.length));

/** Moves the axes but not the traces on them, which take plotly longer than all the rest. Returns whether it could.

    It leaves to plotly: axes whose tick format changes, and figures with traces other than lines, bands and dots. */
async function slide(Plotly, plot, { data }, scales) {
  const full = plot._fullLayout, { _basePlotModules, _visibleModules } = full, ranges = {}, tickCounts = [];
  for (const [path, value] of Object.entries(scales)) {
    const [axis, name] = path.split(".");
    if (name === "range") ranges[path] = [...value];
    else if (name === "nticks") tickCounts.push([axis, value ?? 0]);
    else return false;
  }
  if (!Object.keys(ranges).length || data.some(({ type }) => type !== "scatter")) return false;
  const letters = longestTick(full.yaxis), title = full.yaxis.title.text;
  for (const [axis, nticks] of tickCounts) plot.layout[axis].nticks = full[axis].nticks = nticks;
  // For this call, the modules that draw and style traces do nothing.
  const silent = _basePlotModules.map((module) => ({ ...module, plot() {} }));
  Object.assign(full, { _basePlotModules: silent, _visibleModules: [] });
  try {
    await Plotly.relayout(plot, ranges);
  } finally {
    Object.assign(full, { _basePlotModules, _visibleModules });
  }
  // Where only a range changes, plotly does not move the title, which longer tick labels could then overlap.
  if (longestTick(plot._fullLayout.yaxis) !== letters) await Plotly.relayout(plot, { "yaxis.title.text": title });
  return true;
}

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

const decodedArrays = new WeakMap(); // a cache: an encoded array to its numbers

/** The numbers of an array that may be encoded in base64, as plotly.py sends it. */
function numbers(array) {
  if (!array.bdata) return array;
  if (!decodedArrays.has(array)) {
    const letters = atob(array.bdata), bytes = new Uint8Array(letters.length);
    for (let index = 0; index < letters.length; index += 1) bytes[index] = letters.charCodeAt(index);
    decodedArrays.set(array, new ARRAY_TYPES[array.dtype](bytes.buffer));
  }
  return decodedArrays.get(array);
}

/** A point in pixels, rounded to hundredths as plotly does. */
const rounded = (point) => point.map((value) => Math.round(value * 100) / 100);

const isFinitePoint = (point) => point.every(Number.isFinite);

/** The indices of the points that are drawn as dots: finite points, and of too many in view every n-th.

    As in plotly, the first drawn dot shifts with the number of thinned traces before this one. */
function dotIndices(plot, { index, marker }, points, { xaxis, yaxis }) {
  const most = marker.maxdisplayed;
  const before = plot._fullData.slice(0, index).filter((trace) => trace.visible === true);
  const thinned = before.filter((trace) => trace.marker?.maxdisplayed).length;
  const inView = ([x, y]) => x >= 0 && x <= xaxis._length && y >= 0 && y <= yaxis._length;
  const drawable = [...points.keys()].filter((at) => isFinitePoint(points[at]) && (!most || inView(points[at])));
  const step = most ? Math.ceil(drawable.length / most) : 1;
  const shift = Math.round(thinned * step / 3 + Math.floor(thinned / 3) * step / 7.1);
  return drawable.filter((_, rank) => (rank + shift) % step === 0);
}

/** Whether a trace is a line, a line with words, a band or dots, of which `newPositions` knows the drawing. */
function isWritable({ mode, fill = "none", line, error_y: bars }) {
  const knownMode = ["lines", "lines+text", "markers"].includes(mode), knownFill = ["none", "toself"].includes(fill);
  return knownMode && knownFill && (mode === "markers" || line.shape === "linear") && !bars?.visible;
}

/** The drawn elements of a trace, each with its new attributes; null where they cannot be written.

    `full` is the trace with plotly's defaults. Null is for traces that are not writable, and for a trace whose
    number of drawn elements changes. */
function newPositions(plot, trace, full) {
  const { uid, visible, mode, fill, text, xaxis, yaxis } = full;
  if (visible !== true) return [];
  if (!isWritable(full)) return null;
  const hasLine = mode !== "markers", isBand = fill === "toself";
  const axes = plot._fullLayout._plots[xaxis + yaxis], x = numbers(trace.x);
  const points = Array.from(numbers(trace.y), (value, index) => [axes.xaxis.d2p(x[index]), axes.yaxis.d2p(value)]);
  const runs = [[]]; // the points between gaps
  points.forEach((point) => (isFinitePoint(point) ? runs.at(-1).push(point) : runs.push([])));
  const paths = runs.filter((run) => run.length).map((run) => `M${run.map(rounded).join("L")}`);
  if (isBand && paths.length > 1) return null;
  const hasWord = (point, index) => mode === "lines+text" && isFinitePoint(point) && text[index];
  const dots = hasLine ? [] : dotIndices(plot, full, points, axes);
  const parts = [
    [".js-line", hasLine ? paths.map((d) => ({ d })) : []],
    [".js-fill", isBand ? paths.map((d) => ({ d: `${d}Z` })) : []],
    [".textpoint text", points.filter(hasWord).map(([x, y]) => ({ x, y }))],
    [".points path", dots.map((index) => ({ transform: `translate(${rounded(points[index])})` }))],
  ].map(([selector, attributes]) => [[...plot.querySelectorAll(`.trace${uid} ${selector}`)], attributes]);
  if (parts.some(([nodes, attributes]) => nodes.length !== attributes.length)) return null;
  return parts.flatMap(([nodes, attributes]) => nodes.map((node, index) => [node, attributes[index]]));
}

/** Writes the new positions of traces into the drawing, whose axes are moved already. Returns whether it could. */
function writePositions(plot, figure, traces) {
  const positions = traces.map((index) => newPositions(plot, figure.data[index], plot._fullData[index]));
  if (positions.includes(null)) return false;
  for (const [node, attributes] of positions.flat()) {
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  }
  return true;
}

/** Applies the newest patch to a model's figure, unless another view has. Requests the figure if a patch is missing. */
function applyPatch(model) {
  const { start, end, changes } = model.get("patch");
  if (end === undefined || end === model.get("number")) return;
  if (start !== model.get("number")) {
    model.send("whole");
    return;
  }
  model.set("number", end); // before the figure, whose change makes the other views come here
  model.set("figure", patched(model.get("figure"), changes));
}

/** A copy of a figure with changes applied. It shares with the figure whatever did not change.

    A change is a path and the value there, or a path alone for a value that is removed. */
function patched(figure, changes) {
  return changes.reduce((partial, [path, ...value]) => replaced(partial, path, value), figure);
}

function replaced(whole, [key, ...path], value) {
  if (key === undefined) return value[0];
  const copy = Array.isArray(whole) ? [...whole] : { ...whole };
  if (path.length) copy[key] = replaced(whole[key], path, value);
  else if (value.length) [copy[key]] = value;
  else delete copy[key];
  return copy;
}
