/* The verdict bar: one finding, its evidence on demand, a button; further findings in a list that unfolds. */

const row = (...cells) => make("tr", {}, ...cells);

function table(numbers) {
  const heads = ["Number", "Here", "Limit"].map((head) => make("th", { scope: "col" }, head));
  const rows = numbers.map(([name, value, limit]) =>
    row(make("th", { scope: "row" }, ...explained(name)), make("td", {}, value), make("td", {}, limit)));
  return make("table", {}, make("thead", {}, row(...heads)), make("tbody", {}, ...rows));
}

/* The evidence of a finding, which stays unfolded for the next finding in its place. */
function proof(evidence, numbers, index, unfolded) {
  const folded = make("details", { class: "ex-evidence" }, make("summary", {}, "Evidence"));
  if (evidence) folded.append(make("p", {}, ...explained(evidence)));
  if (numbers.length) folded.append(table(numbers));
  folded.open = unfolded.has(index);
  folded.addEventListener("toggle", () => unfolded[folded.open ? "add" : "delete"](index));
  return folded;
}

function finding(model, { severity, meaning, evidence, remedy, code, numbers = [] }, index, unfolded) {
  const [sign, word] = SIGNS[severity] ?? ["", severity];
  const strong = make("strong");
  write(strong, meaning, explained);
  const root = make("div", { class: "ex-finding", "data-severity": severity },
    make("span", { class: "ex-sign", role: "img", "aria-label": word }, sign),
    make("p", {}, strong, ...(code ? [" ", ...typeset(remedy), ": ", make("code", {}, code)] : [])),
    ...(evidence || numbers.length ? [proof(evidence, numbers, index, unfolded)] : []),
    ...(remedy && !code ? [button(remedy, "ex-button ex-primary", () => press(model, index))] : []));
  rove(root);
  return root;
}

export default {
  render({ model, el }) {
    become(el, "ex-verdict", { role: "region", "aria-label": "Verdict" });
    let open = false;
    const unfolded = new Set();
    // Where the page is narrow, the chart that stays in sight stands below the verdict, however long that is.
    const sized = new ResizeObserver(() => {
      el.closest(".ex-explore")?.style.setProperty("--ex-verdict-height", `${el.offsetHeight}px`);
    });
    sized.observe(el);
    const ends = [follow(model, "findings undo", () => {
      const nodes = model.get("findings").map((item, index) => finding(model, item, index, unfolded));
      el.hidden = nodes.length === 0;
      if (nodes.length && model.get("undo")) {
        const title = `Takes back: ${model.get("undo")}`;
        nodes[0].append(button("Undo", "ex-button", () => press(model, "undo"), { title }));
      }
      el.replaceChildren(...nodes.slice(0, 1));
      if (nodes.length < 2) return;
      const count = nodes.length === 2 ? "1 more finding" : `${nodes.length - 1} more findings`;
      const more = make("details", {}, make("summary", {}, count), ...nodes.slice(1));
      more.open = open;
      more.addEventListener("toggle", () => { open = more.open; });
      el.append(more);
    })];
    ends.push(follow(model, "stale", () => el.classList.toggle("ex-stale", model.get("stale")))); // buttons stay
    return () => {
      sized.disconnect();
      ends.forEach((end) => end());
    };
  },
};
