/* Sub- and superscripts of what is written plainly: W_Q, A_(l−1), 2^(−l/2). `figures/words.py` does the same for plotly.
   `source` in source.py puts this before a widget's own script. */

const NOTATION = /(?<![\p{L}\p{N}_])(\p{L}|fan)_(\([^()]+\)|[\p{L}\p{N}]+)|\^(\([^()]+\)|[-+−]?[\p{L}\p{N}]+)/gu;

/** A text as nodes: whatever it holds, only text, `sub` and `sup` come out. */
function typeset(text) {
  const nodes = [];
  let end = 0;
  for (const { 0: whole, 1: base = "", 2: below, 3: above, index } of text.matchAll(NOTATION)) {
    const script = document.createElement(below ? "sub" : "sup");
    script.textContent = (below ?? above).replace(/^\((.*)\)$/, "$1").replace("¼", "1/4").replace("½", "1/2"); // legible
    nodes.push(text.slice(end, index) + base, script);
    end = index + whole.length;
  }
  return [...nodes, text.slice(end)];
}

/** Writes a text into a node, if it is another one than before: a live region would read it out again. */
function write(node, text) {
  if (node.exText === text) return;
  node.exText = text;
  node.replaceChildren(...typeset(text));
}
