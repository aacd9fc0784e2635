/* Helpers that several views share: elements, buttons, the swatch of a design, and the signs of severity. */

const SVG = "http://www.w3.org/2000/svg";
const DASHES = {
  solid: "", dash: "6 4", dot: "2 2.5", dashdot: "6 3 2 3", longdash: "9 4", longdashdot: "9 3 2 3",
};
const SYMBOLS = { // centered at 0, 0, all of about the same area
  circle: "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z",
  square: "M-3.5 -3.5h7v7h-7Z",
  diamond: "M0 -5L5 0L0 5L-5 0Z",
  "triangle-up": "M0 -4.8L5 3.6H-5Z",
  cross: "M-1.6 -4.6h3.2v3h3v3.2h-3v3h-3.2v-3h-3v-3.2h3Z",
  star: "M0 -5.4L1.4 -1.7L5.2 -1.6L2.2 .8L3.2 4.5L0 2.4L-3.2 4.5L-2.2 .8L-5.2 -1.6L-1.4 -1.7Z",
};

/** The sign and the word for each severity of a finding. */
const SIGNS = { good: ["✓", "Good"], warning: ["!", "Warning"], bad: ["×", "Problem"], withheld: ["?", "Withheld"] };

/** Keeps JupyterLab's shortcuts from taking letters and arrow keys while this element has the focus. */
const OWN_KEYS = { "data-lm-suppress-shortcuts": "true" };

/** Creates an element. Attributes that start with "on" are event listeners; empty attributes are left out. */
function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== "" && value != null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/** Creates a button whose letters and arrow keys JupyterLab leaves alone. */
function button(label, className, onclick, attributes = {}) {
  return make("button", { type: "button", class: className, ...OWN_KEYS, ...attributes, onclick }, label);
}

/** Makes buttons one stop of the Tab key: the arrow keys move between those that can be seen. */
function makeToolbar(buttons) {
  const stopAt = (stop) => buttons.forEach((node) => { node.tabIndex = node === stop ? 0 : -1; });
  stopAt(buttons[0]);
  const onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = buttons.at((buttons.indexOf(event.currentTarget) + step) % buttons.length);
    stopAt(next);
    next.focus();
  };
  buttons.forEach((node) => node.addEventListener("keydown", onkeydown));
}

/** Gives a view's own element its class in the style sheet, and its attributes for screen readers. */
function become(el, className, attributes = {}) {
  el.classList.add(className);
  setAttributes(el, attributes);
}

function setAttributes(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
}

/** Calls `paint` now and at changes of traits, whose names are separated by spaces. Returns a function that stops. */
function follow(model, traits, paint) {
  const events = traits.split(" ").map((trait) => `change:${trait}`).join(" ");
  model.on(events, paint);
  paint();
  return () => model.off(events, paint);
}

/** Sets an attribute if its value differs, or removes it where `value` is null. */
function setAttribute(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

/** Listens to events, whose names are separated by spaces. Returns a function that stops. */
function listen(target, events, listener, options) {
  const names = events.split(" ");
  names.forEach((name) => target.addEventListener(name, listener, options));
  return () => names.forEach((name) => target.removeEventListener(name, listener, options));
}

/** Listens to an event of the panel around a view's element, which is on the page from the next frame on. */
function listenInPanel(el, event, listener) {
  const listening = new AbortController();
  requestAnimationFrame(() => el.closest(".ex-explore")?.addEventListener(event, listener, listening));
  return () => listening.abort();
}

/** One function that calls all of these, each of which stops something. */
const callAll = (stops) => () => stops.forEach((stop) => stop());

/** Scrolls to a node if there is one: smoothly, unless the person prefers less motion. */
function bringIntoView(node) {
  const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  node?.scrollIntoView({ block: "nearest", behavior: isCalm ? "auto" : "smooth" });
}

/** Sets a node's text if it differs. Writing the same text again would make the browser lay out the whole page. */
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** An element with the nodes of a text, whose markup the kernel has made. */
const parsedHtml = (text) => new DOMParser().parseFromString(text, "text/html").body;

function makeSvg(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  setAttributes(node, attributes);
  node.append(...children);
  return node;
}

/** A short line with a dot in the style of a design. `paint` applies other marks: hue, symbol and dash. */
function swatch(marks) {
  const line = makeSvg("path", { d: "M0 7H34", "stroke-width": 2, fill: "none" });
  const dot = makeSvg("path", { transform: "translate(17 7)" });
  const size = { width: 34, height: 14, viewBox: "0 0 34 14" };
  const svg = makeSvg("svg", { class: "ex-swatch", ...size, "aria-hidden": "true" }, line, dot);
  const paint = ({ hue, symbol, dash }) => {
    setAttributes(line, { stroke: hue, "stroke-dasharray": DASHES[dash] ?? "" });
    setAttributes(dot, { fill: hue, d: SYMBOLS[symbol] ?? SYMBOLS.circle });
  };
  if (marks) paint(marks);
  return { svg, paint };
}
