/* Texts with formulas, and the glossary: symbols are buttons that open their entry in a popup, papers are links.

   The entries come once, with the page's script. One listener at the document hears all clicks. Popups are in the
   top layer, where no box clips them. */

// Sub- and superscripts in plain formulas such as W_Q, A_(l−1) and 2^(−l/2); `figures/words.py` does the same for plotly.
const NOTATION = /(?<![\p{L}\p{N}_])(\p{L}²?|fan)_(\([^()]+\)|[\p{L}\p{N}]+)|\^(\([^()]+\)|[-+−]?[\p{L}\p{N}]+)/gu;

/** A script without its parentheses, and with fractions that are legible at its size. */
const small = (script) => script.replace(/^\((.*)\)$/, "$1").replace("¼", "1/4").replace("½", "1/2");

/** The text with the tags that plotly reads. Markup within the text is escaped. */
function tagged(text) {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(NOTATION, (_, base, below, above) => (
    below ? `${base}<sub>${small(below)}</sub>` : `<sup>${small(above)}</sup>`
  ));
}

/** The text as nodes: `matchNodes` makes those of each match, or null to leave the match in the text between. */
function replaceMatches(text, pattern, matchNodes, textNodes) {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(pattern)) {
    const replacement = matchNodes(match);
    if (!replacement) continue;
    nodes.push(...textNodes(text.slice(end, match.index)), ...replacement);
    end = match.index + match[0].length;
  }
  return [...nodes, ...textNodes(text.slice(end))];
}

/** The text as nodes. Only text, `sub` and `sup` come out, so markup within the text is harmless. */
const typeset = (text) => replaceMatches(text, NOTATION, ([, base = "", below, above]) => (
  [base, make(below ? "sub" : "sup", {}, small(below ?? above))]), (part) => [part]);

/** Writes a text into a node if it differs from the text before: a live region would read the same text out again.

    `toNodes` makes the nodes. `explained` and `cited` make buttons and links too, which may not stand within a
    label or within another button. */
function write(node, text, toNodes = typeset) {
  if (node.exText === text) return;
  node.exText = text;
  node.replaceChildren(...toNodes(text));
  if (node.querySelector(".ex-term")) makeTabStop(node);
}

const glossary = { terms: [], lessons: {}, hosts: {}, indexBySymbol: new Map(), pattern: /$^/gu };
const CITED = /(?:([^;:·\n,\s][^;:·\n]*?),? )?\b(arXiv|kexue) (\d{4}\.\d{4,5}|\d+)/gu;

/** Stores the entries, and builds the pattern that finds symbols and formulas in a text. */
function loadGlossary({ terms, lessons, hosts, marks }) {
  const literal = Object.keys(marks).sort((left, right) => right.length - left.length)
    .map((symbol) => symbol.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&")).join("|");
  Object.assign(glossary, { terms, lessons, hosts, indexBySymbol: new Map(Object.entries(marks)) });
  glossary.pattern = new RegExp(
    `(?<![\\p{L}\\p{N}_'’])(?:${literal})[²′]{0,2}(?![\\p{L}\\p{N}_(])|${NOTATION.source}`, "gu");
}

/** A button with the text of a symbol that opens entry number `index`. */
const termButton = (text, index, attributes = {}) => make("button", {
  type: "button", class: "ex-term", "data-term": index, "aria-haspopup": "dialog", "aria-expanded": "false",
  ...OWN_KEYS, ...attributes,
}, ...typeset(text));

/** A "?" button for an entry whose symbol stands in a label, because a label cannot hold a button. */
const helpButton = (index) => (glossary.terms[index]
  ? [termButton("?", index, { "aria-label": `What is ${glossary.terms[index].symbol}?` })] : []);

/** The number of a symbol's entry, also of the symbol with a square or a prime after it. */
const termIndex = (symbol) => (
  glossary.indexBySymbol.get(symbol) ?? glossary.indexBySymbol.get(symbol.replace(/[²′]{1,2}$/, "")));

/** The text as nodes, like `typeset`, with its symbols as buttons. */
const explained = (text) => replaceMatches(text, glossary.pattern, ([symbol]) => {
  const index = termIndex(symbol); // undefined for a formula with scripts that is no symbol of the glossary
  return index === undefined ? null : [termButton(symbol, index)];
}, typeset);

/** The symbols in the control, the chart's words, the finding or the paragraph around a node. */
const termsAround = (node) => [...(node.closest(".ex-control, .ex-chart-words, .ex-finding")
  ?? node.closest("p, li, dd, td, div") ?? node).querySelectorAll(".ex-term")];

/** Lets Tab reach one symbol around a node: `stop`, or else the first. Arrow keys reach the others. Those of a control
    that was not used yet wait: until then the menu's glossary has them. */
function makeTabStop(node, stop) {
  const terms = termsAround(node);
  const isWaiting = node.closest(".ex-control:not(.ex-used)");
  terms.forEach((term, index) => {
    const isStop = stop ? term === stop : index === 0;
    term.tabIndex = isStop && !isWaiting ? 0 : -1;
  });
}

/** Moves the focus from a symbol to the next or the previous one at an arrow key. */
function moveToTerm(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], term = event.target.closest?.(".ex-term");
  if (!step || !term || event.altKey || event.ctrlKey || event.metaKey) return;
  const terms = termsAround(term).filter((node) => node.checkVisibility());
  const next = terms.at((terms.indexOf(term) + step) % terms.length);
  event.preventDefault();
  makeTabStop(term, next);
  next.focus();
}

/** The text as nodes, like `explained`, with papers as links.

    The link of "Xiong et al. 2020, arXiv 2002.04745" reads "Xiong et al. 2020". */
const cited = (text) => replaceMatches(text, CITED, ([, author, host, number]) => [make("a", {
  class: "ex-paper", href: glossary.hosts[host] + number, target: "_blank", rel: "noopener noreferrer",
  title: `${host} ${number}`,
}, author ?? `${host} ${number}`)], explained);

/** A link that opens a lesson beside the page; none where there is no such lesson. */
const lessonLink = (name) => {
  const [title, href] = glossary.lessons[name] ?? [];
  return title ? [make("a", { class: "ex-to-lesson", href, target: "_blank" }, `Lesson: ${title}`)] : [];
};

/** Groups of nodes with a dot between them; empty groups are left out. */
const separatedByDots = (groups) => groups.filter((group) => group.length)
  .flatMap((group, index) => (index ? [" · ", ...group] : group));

/** Writes the fold beside a chart's caption: the reason, the lesson and the paper. */
function writeWhy(node, { why, lesson, source }) {
  node.hidden = !(why || lesson || source);
  const words = () => make("p", {}, ...explained(why), " ", ...separatedByDots([lessonLink(lesson), cited(source)]));
  write(node, [why, lesson, source].join("\n"), () => [make("summary", {}, "Why?"), words()]);
}

/** An entry as nodes: symbol and name, description, formula, values, lesson and paper. */
function entryNodes({ symbol, name, words, formula, unit, lesson, source }, root) {
  const details = [[formula, "Formula"], [unit, "Values"]].filter(([text]) => text);
  const links = [root.querySelector(".ex-header") ? lessonLink(lesson) : [], source ? cited(source) : []];
  return [
    make("dt", {}, make("span", { class: "ex-row-symbol" }, ...typeset(symbol)), " ", name),
    make("dd", {}, make("p", {}, ...typeset(words)),
      ...details.map(([text, label]) => make("p", { class: "ex-row-more" }, `${label}: `, ...typeset(text))),
      make("p", { class: "ex-row-more" }, ...separatedByDots(links))),
  ];
}

/** Opens the entry of a symbol's button in a popover. The browser closes it: at Escape, at a click elsewhere, and at a
    click on the button that it belongs to. It then gives the focus back. */
function openTerm(event) {
  const term = event.target.closest(".ex-term");
  const root = term?.closest(".ex-root"), entry = glossary.terms[term?.dataset.term];
  if (!root || !entry || term.popoverTargetElement) return;
  event.preventDefault(); // or the browser would close at once what is opened here, where it can be placed
  const all = button("All symbols", "ex-link", () => { card.hidePopover(); openGlossary(root, entry); });
  const card = make("div", {
    class: "ex-popup ex-term-card", popover: "auto", role: "dialog", "aria-label": entry.name, tabindex: -1,
    ...OWN_KEYS, ontoggle: ({ newState }) => {
      if (newState === "open") return;
      stopPlacing();
      card.remove();
      term.popoverTargetElement = null;
      term.setAttribute("aria-expanded", "false");
    },
  }, make("dl", {}, ...entryNodes(entry, root)), all);
  root.append(card);
  card.showPopover();
  const stopPlacing = keepBelow(card, term);
  term.popoverTargetElement = card;
  term.setAttribute("aria-expanded", "true");
  card.focus({ preventScroll: true });
}

/** Opens all entries in a dialog, scrolled to `first` where one is given. */
function openGlossary(root, first) {
  const nodes = glossary.terms.map((entry) => make("div", { class: "ex-row-entry" }, ...entryNodes(entry, root)));
  const dialog = make("dialog", {
    class: "ex-glossary", "aria-label": "Glossary", ...OWN_KEYS, onclose: () => dialog.remove(),
  }, make("div", { class: "ex-glossary-head" }, make("h2", {}, "Glossary"),
    button("Close", "ex-button", () => dialog.close())),
  make("div", { class: "ex-glossary-rows", tabindex: 0, role: "group", "aria-label": "Symbols" },
    make("p", { class: "ex-row-more" }, "By keyboard: Tab goes to the first symbol of a text, ← and → to its others."),
    make("dl", {}, ...nodes)));
  root.append(dialog);
  dialog.showModal();
  nodes[glossary.terms.indexOf(first)]?.scrollIntoView({ block: "start" });
}

/** Listens to clicks and keys, and stops the listeners of an earlier kernel's script in the same window. */
function listenToGlossary() {
  const key = Symbol.for("transformer-signal-explorer.glossary");
  globalThis[key]?.abort();
  globalThis[key] = new AbortController();
  document.addEventListener("click", openTerm, { signal: globalThis[key].signal });
  document.addEventListener("keydown", moveToTerm, { signal: globalThis[key].signal, capture: true });
}
