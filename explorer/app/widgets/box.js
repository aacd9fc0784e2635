/* A box around its children, which come and go. */

export default {
  render({ model, el }) {
    const drawn = new Map(); // the number of a child to its element, and how its drawing is stopped
    el.classList.add("ex-box");
    const stop = follow(model, "children", () => {
      const numbers = model.get("children");
      for (const [number, { node, end }] of drawn) {
        if (numbers.includes(number)) continue;
        end();
        node.remove();
        drawn.delete(number);
      }
      for (const [place, number] of numbers.entries()) {
        if (drawn.has(number)) continue;
        const node = make("div");
        drawn.set(number, { node, end: drawPart(model.page.parts.get(number), node) });
        el.insertBefore(node, el.children[place] ?? null);
      }
    });
    return () => { stop(); drawn.forEach(({ end }) => end()); };
  },
};
