/* Elements that several views are made of: buttons that keep their keys, the mark of a design, and signs of severity. */

const SVG = "http://www.w3.org/2000/svg";
const DASHES = {
  solid: "", dash: "6 4", dot: "2 2.5", dashdot: "6 3 2 3", longdash: "9 4", longdashdot: "9 3 2 3",
};
const SYMBOLS = { // around 0, 0; of one area, about
  circle: "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z",
  square: "M-3.5 -3.5h7v7h-7Z",
  diamond: "M0 -5L5 0L0 5L-5 0Z",
  "triangle-up": "M0 -4.8L5 3.6H-5Z",
  cross: "M-1.6 -4.6h3.2v3h3v3.2h-3v3h-3.2v-3h-3v-3.2h3Z",
  star: "M0 -5.4L1.4 -1.7L5.2 -1.6L2.2 .8L3.2 4.5L0 2.4L-3.2 4.5L-2.2 .8L-5.2 -1.6L-1.4 -1.7Z",
};

/** Sign and word of a finding's severity. */
const SIGNS = { good: ["✓", "Good"], warning: ["!", "Warning"], bad: ["×", "Problem"], withheld: ["?", "Withheld"] };

/** JupyterLab would take letters and arrow keys from whatever has the focus, unless that element itself says no. */
const OWN_KEYS = { "data-lm-suppress-shortcuts": "true" };

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== "" && value != null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function button(words, name, click, attributes = {}) {
  return make("button", { type: "button", class: name, ...OWN_KEYS, ...attributes, onclick: click }, words);
}

/** Makes a view's own element a part of the page: its class in the style sheet, and what it says to screen readers. */
function become(el, name, attributes = {}) {
  el.classList.add(name);
  for (const [key, value] of Object.entries(attributes)) el.setAttribute(key, value);
}

/** Paints now, and whenever one of the traits changes; returns what ends it. */
function follow(model, traits, paint) {
  const events = traits.split(" ").map((trait) => `change:${trait}`).join(" ");
  model.on(events, paint);
  paint();
  return () => model.off(events, paint);
}

/** Sets an attribute, unless it is so. */
function mark(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

/** Sets a node's text, unless it has it: each text that is new, and be it the same, has the whole page laid out again. */
function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function drawn(tag, attributes) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

/** A line and a dot, as the charts draw them. */
function swatch() {
  const line = drawn("path", { d: "M0 7H34", "stroke-width": 2, fill: "none" });
  const dot = drawn("path", { transform: "translate(17 7)" });
  const svg = drawn("svg", { class: "ex-swatch", width: 34, height: 14, viewBox: "0 0 34 14", "aria-hidden": "true" });
  svg.append(line, dot);
  const paint = ({ hue, symbol, dash }) => {
    line.setAttribute("stroke", hue);
    line.setAttribute("stroke-dasharray", DASHES[dash] ?? "");
    dot.setAttribute("fill", hue);
    dot.setAttribute("d", SYMBOLS[symbol] ?? SYMBOLS.circle);
  };
  return { svg, paint };
}
