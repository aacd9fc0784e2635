/* Sets sub- and superscripts in plain formulas such as W_Q, A_(l−1) and 2^(−l/2).

   `figures/words.py` does the same for the texts of plotly. */

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
