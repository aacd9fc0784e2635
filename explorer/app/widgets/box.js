/* The simplest parts: a box around others, and a text. */

/** A box around its children, which come and go. */
export function box(model, el) {
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
}

/** A text of the page, as HTML that Python has made: nothing of a visitor's is in it that is not escaped there. */
export function words(model, el) {
  const text = make("div", { class: "ex-html" });
  el.append(text);
  return follow(model, "value", () => text.replaceChildren(...parsedHtml(model.get("value")).childNodes));
}
