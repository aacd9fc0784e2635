/* The simplest parts: a box around others, a text, and a row of buttons. */

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

/** A row of buttons and a note. Buttons are only disabled, never removed; the focus then moves to the next. */
export function buttons(model, el) {
  const links = model.get("links");
  const note = make("p", links ? { class: "ex-hint", role: "status" } : {});
  const nodes = model.get("buttons").map((_, index) => button("", links ? "ex-link" : "ex-button", () => {
    const { verb, enabled } = model.get("buttons")[index];
    if (enabled) model.act(verb);
  }));
  become(el, links ? "ex-saves" : "ex-race-bar", { role: "group", "aria-label": model.get("label") });
  el.append(...nodes, note);
  // The browser then asks whether to leave the page and lose an unsaved race.
  const confirmLeaving = (event) => model.get("losing") && event.preventDefault();
  return callAll([listen(window, "beforeunload", confirmLeaving), follow(model, "buttons note refused", () => {
    const focused = nodes.find((node) => node === document.activeElement);
    model.get("buttons").forEach(({ verb, label, enabled, primary, title }, index) => {
      Object.assign(nodes[index], { textContent: label, title, disabled: !enabled });
      nodes[index].dataset.verb = verb;
      nodes[index].classList.toggle("ex-primary", primary && enabled);
    });
    if (focused?.disabled) nodes.find((node) => !node.disabled)?.focus();
    note.textContent = model.get("note");
    note.classList.toggle("ex-refusal", model.get("refused"));
  })]);
}
