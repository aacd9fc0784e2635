/* Sub- and superscripts of what is written plainly: W_Q, A_(l−1), 2^(−l/2). `figures/words.py` does the same for plotly. */

const NOTATION = /(?<![\p{L}\p{N}_])(\p{L}²?|fan)_(\([^()]+\)|[\p{L}\p{N}]+)|\^(\([^()]+\)|[-+−]?[\p{L}\p{N}]+)/gu;

/** What stands low or high, without its parentheses, and legible at that size. */
const small = (words) => words.replace(/^\((.*)\)$/, "$1").replace("¼", "1/4").replace("½", "1/2");

/** A text with tags that plotly reads; what it holds of markup itself is shown as such. */
function tagged(text) {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(NOTATION, (_, base, below, above) => (
    below ? `${base}<sub>${small(below)}</sub>` : `<sup>${small(above)}</sup>`
  ));
}

/** A text as nodes: whatever it holds, only text, `sub` and `sup` come out. */
function typeset(text) {
  const nodes = [];
  let end = 0;
  for (const { 0: whole, 1: base = "", 2: below, 3: above, index } of text.matchAll(NOTATION)) {
    const script = document.createElement(below ? "sub" : "sup");
    script.textContent = small(below ?? above);
    nodes.push(text.slice(end, index) + base, script);
    end = index + whole.length;
  }
  return [...nodes, text.slice(end)];
}

/** Writes a text into a node, if it is another one than before: a live region would read it out again. As `nodes` makes
    them: `explained` and `cited` have buttons and links, which cannot stand within a label or another button. */
function write(node, text, nodes = typeset) {
  if (node.exText === text) return;
  node.exText = text;
  node.replaceChildren(...nodes(text));
  if (node.querySelector(".ex-term")) rove(node);
}
