/* The glossary. Symbols in a text are buttons that open their row beside them; papers are links.

   The rows come once, with the page's script. Clicks are heard at the document, so that buttons in HTML of the kernel
   (`figures/words.py`) work as those made here. What opens is in the top layer, where no box cuts it off. */
const glossary = { terms: [], labs: {}, hosts: {}, places: new Map(), pattern: /$^/gu };
const CITED = /(?:([^;:·\n,\s][^;:·\n]*?),? )?\b(arXiv|kexue) (\d{4}\.\d{4,5}|\d+)/gu;

/** Takes the rows, and makes one expression of all that is a symbol wherever it stands by itself. */
function learn({ terms, labs, hosts, marks }) {
  const literal = Object.keys(marks).sort((one, other) => other.length - one.length)
    .map((mark) => mark.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&")).join("|");
  Object.assign(glossary, { terms, labs, hosts, places: new Map(Object.entries(marks)) });
  glossary.pattern = new RegExp(
    `(?<![\\p{L}\\p{N}_'’])(?:${literal})[²′]{0,2}(?![\\p{L}\\p{N}_(])|${NOTATION.source}`, "gu");
}

/** A button that opens a row: `text` as it stands there. */
const termButton = (text, place, more = {}) => make("button", {
  type: "button", class: "ex-term", "data-term": place, "aria-haspopup": "dialog", "aria-expanded": "false", ...OWN_KEYS,
  ...more,
}, ...typeset(text));

/** The same where the symbol itself stands in a label, which cannot hold a button. */
const asked = (place) => (glossary.terms[place]
  ? [termButton("?", place, { "aria-label": `What is ${glossary.terms[place].symbol}?` })] : []);

const placeOf = (found) => glossary.places.get(found) ?? glossary.places.get(found.replace(/[²′]{1,2}$/, ""));

/** A text as nodes, as `typeset` makes them, with its symbols as buttons. */
function explained(text) {
  const nodes = [];
  let end = 0;
  for (const { 0: found, index } of text.matchAll(glossary.pattern)) {
    const place = placeOf(found);
    if (place === undefined) continue; // a formula with sub- or superscripts, of which no part is a symbol
    nodes.push(...typeset(text.slice(end, index)), termButton(found, place));
    end = index + found.length;
  }
  return [...nodes, ...typeset(text.slice(end))];
}

/** The symbols of the control, the chart's words or the paragraph in which a node stands. */
const termsAround = (node) => [...(node.closest(".ex-control, .ex-chart-words, .ex-finding")
  ?? node.closest("p, li, dd, td, div") ?? node).querySelectorAll(".ex-term")];

/** Makes one of the symbols around a node a stop of the Tab key, the first or `stop`; arrow keys go to the others. */
function rove(node, stop) {
  const terms = termsAround(node);
  terms.forEach((term, index) => { term.tabIndex = (stop ? term === stop : index === 0) ? 0 : -1; });
}

/** To the next symbol, or the one before it. */
function goToTerm(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], term = event.target.closest?.(".ex-term");
  if (!step || !term || event.altKey || event.ctrlKey || event.metaKey) return;
  const terms = termsAround(term).filter((one) => one.checkVisibility());
  const next = terms.at((terms.indexOf(term) + step) % terms.length);
  event.preventDefault();
  rove(term, next);
  next.focus();
}

/** The same with links for papers: "Xiong et al. 2020, arXiv 2002.04745" shows author and year. */
function cited(text) {
  const nodes = [];
  let end = 0;
  for (const { 0: whole, 1: words, 2: host, 3: number, index } of text.matchAll(CITED)) {
    const link = { class: "ex-paper", href: glossary.hosts[host] + number, target: "_blank", rel: "noopener noreferrer" };
    nodes.push(...explained(text.slice(end, index)),
      make("a", { ...link, title: `${host} ${number}` }, words ?? `${host} ${number}`));
    end = index + whole.length;
  }
  return [...nodes, ...explained(text.slice(end))];
}

/** A button that goes to a lab; none where the page has no such lab. */
const labButton = (name) => (glossary.labs[name]
  ? [make("button", { type: "button", class: "ex-link ex-to-lab", "data-lab": name, ...OWN_KEYS }, `Lab ${glossary.labs[name]}`)]
  : []);

/** Nodes with a dot between them. */
const dotted = (groups) => groups.filter((group) => group.length).flatMap((group, index) => (index ? [" · ", ...group] : group));

/** The line below a caption: why, the lab, the paper. */
function writeWhy(node, { why, lab, source }) {
  node.hidden = !(why || lab || source);
  write(node, [why, lab, source].join("\n"), () => [
    ...explained(why), " ", make("span", { class: "ex-why-links" }, ...dotted([labButton(lab), cited(source)]))]);
}

/** A row: its symbol and name, what it is, and where to go on. Its lab only where the page has it. */
function rowNodes({ symbol, name, words, formula, unit, lab, source }, root) {
  const said = [[formula, "Formula"], [unit, "Values"]].filter(([text]) => text);
  const there = headerOf(root)?.exLabs.includes(lab);
  return [
    make("dt", {}, make("span", { class: "ex-row-symbol" }, ...typeset(symbol)), " ", name),
    make("dd", {}, make("p", {}, ...typeset(words)),
      ...said.map(([text, label]) => make("p", { class: "ex-row-more" }, `${label}: `, ...typeset(text))),
      make("p", { class: "ex-row-more" }, ...dotted([there ? labButton(lab) : [], source ? cited(source) : []]))),
  ];
}

const headerOf = (root) => root.querySelector(".ex-header");
let opened = null; // { term, card, place }
function closeTerm(focus = false) {
  if (!opened) return;
  const { term, card, place } = opened;
  opened = null;
  ["scroll", "resize"].forEach((name) => window.removeEventListener(name, place, true));
  card.remove();
  term.setAttribute("aria-expanded", "false");
  if (focus) term.focus();
}

function openTerm(term) {
  const root = term.closest(".ex-root");
  const row = glossary.terms[term.dataset.term];
  if (!root || !row) return;
  const all = button("All symbols", "ex-link", () => { closeTerm(true); openGlossary(root, row); });
  const card = make("div", {
    class: "ex-popup ex-term-card", popover: "manual", role: "dialog", "aria-label": row.name, tabindex: -1, ...OWN_KEYS,
  }, make("dl", {}, ...rowNodes(row, root)), all);
  const place = () => placeBelow(card, term);
  opened = { term, card, place };
  root.append(card);
  card.showPopover();
  place();
  ["scroll", "resize"].forEach((name) => window.addEventListener(name, place, true));
  term.setAttribute("aria-expanded", "true");
  card.focus({ preventScroll: true });
}

/** All rows, in a dialog of the page; it shows `row` first where one is given. */
function openGlossary(root, row) {
  const nodes = glossary.terms.map((one) => make("div", { class: "ex-row-entry" }, ...rowNodes(one, root)));
  const dialog = make("dialog", { class: "ex-glossary", "aria-label": "Glossary", ...OWN_KEYS, onclose: () => dialog.remove() },
    make("div", { class: "ex-glossary-head" }, make("h2", {}, "Glossary"),
      button("Close", "ex-button", () => dialog.close())),
    make("div", { class: "ex-glossary-rows", tabindex: 0, role: "group", "aria-label": "Symbols" },
      make("p", { class: "ex-row-more" }, "By keyboard: Tab goes to the first symbol of a text, ← and → to its others."),
      make("dl", {}, ...nodes)));
  root.append(dialog);
  dialog.showModal();
  nodes[glossary.terms.indexOf(row)]?.scrollIntoView({ block: "start" });
}

function clicked({ target }) {
  const term = target.closest(".ex-term");
  const lab = target.closest("[data-lab]");
  const before = opened?.term;
  if (lab) {
    headerOf(lab.closest(".ex-root"))?.exOpenLab(lab.dataset.lab);
    lab.closest("dialog")?.close();
  }
  if (!opened?.card.contains(target) || lab) closeTerm();
  if (term && term !== before) openTerm(term);
}

function pressed(event) {
  goToTerm(event);
  if (event.key !== "Escape" || !opened) return;
  event.preventDefault();
  event.stopPropagation();
  closeTerm(true);
}

/** Hears clicks on symbols, in place of the script of an earlier kernel in the same window. */
function listenToTerms() {
  const key = Symbol.for("transformer-signal-explorer.glossary");
  globalThis[key]?.abort();
  globalThis[key] = new AbortController();
  document.addEventListener("click", clicked, { signal: globalThis[key].signal });
  document.addEventListener("keydown", pressed, { signal: globalThis[key].signal, capture: true });
}
