/* The verdict bar: the first finding with its evidence and a fix, and a fold with the other findings. */

const row = (...cells) => make("tr", {}, ...cells);

function table(numbers) {
  const heads = ["Number", "Here", "Limit"].map((head) => make("th", { scope: "col" }, head));
  const rows = numbers.map(([name, value, limit]) =>
    row(make("th", { scope: "row" }, ...explained(name)), make("td", {}, value), make("td", {}, limit)));
  return make("table", {}, make("thead", {}, row(...heads)), make("tbody", {}, ...rows));
}

/** The evidence of finding number `index`, in a fold. The set `unfolded` keeps it open for the next finding there. */
function evidenceFold(evidence, numbers, index, unfolded) {
  const fold = make("details", { class: "ex-evidence" }, make("summary", {}, "Evidence"));
  const words = make("div", { class: "ex-evidence-words" });
  if (evidence) words.append(make("p", {}, ...explained(evidence)));
  if (numbers.length) words.append(table(numbers));
  fold.append(words);
  fold.open = unfolded.has(index);
  fold.addEventListener("toggle", () => unfolded[fold.open ? "add" : "delete"](index));
  return fold;
}

function findingNode(model, { severity, meaning, evidence, remedy, code, numbers = [] }, index, unfolded) {
  const [sign, word] = SIGNS[severity] ?? ["", severity];
  const strong = make("strong");
  write(strong, meaning, explained);
  const root = make("div", { class: "ex-finding", "data-severity": severity },
    make("span", { class: "ex-sign", role: "img", "aria-label": word }, sign),
    make("p", {}, strong, ...(code ? [" ", ...typeset(remedy), ": ", make("code", {}, code)] : [])),
    ...(evidence || numbers.length ? [evidenceFold(evidence, numbers, index, unfolded)] : []),
    ...(remedy && !code ? [button(remedy, "ex-button ex-primary", () => model.act(index))] : []));
  makeTabStop(root);
  return root;
}

export function verdict(model, el) {
  become(el, "ex-verdict", { role: "region", "aria-label": "Verdict" });
  let isOpen = false;
  const unfolded = new Set();
  // On a narrow page the chart that sticks to the top stands below the verdict, and needs the verdict's height.
  const resizes = new ResizeObserver(() => {
    el.closest(".ex-explore")?.style.setProperty("--ex-verdict-height", `${el.offsetHeight}px`);
  });
  resizes.observe(el);
  return callAll([() => resizes.disconnect(), follow(model, "findings undo", () => {
    const nodes = model.get("findings").map((finding, index) => findingNode(model, finding, index, unfolded));
    el.hidden = nodes.length === 0;
    if (nodes.length && model.get("undo")) {
      const title = `Takes back: ${model.get("undo")}`;
      nodes[0].append(button("Undo", "ex-button", () => model.act("undo"), { title }));
    }
    el.replaceChildren(...nodes.slice(0, 1));
    if (nodes.length < 2) return;
    const count = nodes.length === 2 ? "1 more finding" : `${nodes.length - 1} more findings`;
    const others = make("details", {}, make("summary", {}, count), ...nodes.slice(1));
    others.open = isOpen;
    others.addEventListener("toggle", () => { isOpen = others.open; });
    el.append(others);
  }), follow(model, "stale", () => { // apart from the findings, so that their buttons stay, and with them the focus
    el.classList.toggle("ex-stale", model.get("stale"));
  })]);
}
