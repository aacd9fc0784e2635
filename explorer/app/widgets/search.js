/* A list to search in: an entry that filters options in groups, the WAI-ARIA combobox. The focus stays in the entry; the
   option that Enter takes is its `aria-activedescendant`. The list opens in the top layer, where no box cuts it off. */

const ROOM = 280; // pixels below the entry that are enough: with less, the list opens where there is more
const WIDEST = 420;
const plain = (text) => text.toLowerCase().replace(/[^\p{L}\p{N}\s]/gu, "");

/** Options as nodes in groups, and `filter`, which shows and returns those that have a query as it stands, or else all of
   its words. */
function optionGroups(options, id, choose) {
  const groups = new Map();
  const rows = options.filter(({ group }) => group).map((option, index) => {
    const node = make("div", { class: "ex-option", role: "option", id: `${id}-${index}`, "data-value": option.value,
      "aria-selected": "false", onclick: () => choose(option) },
    make("span", { class: "ex-option-title" }, ...typeset(option.label)),
    make("span", { class: "ex-option-words" }, ...typeset(option.formula)));
    const title = `${id}-group-${groups.size}`;
    if (!groups.has(option.group)) {
      groups.set(option.group, make("div", { class: "ex-option-group", role: "group", "aria-labelledby": title },
        make("div", { class: "ex-option-head", id: title, role: "presentation" }, option.group)));
    }
    groups.get(option.group).append(node);
    const words = `${option.find} ${option.group}`;
    return { option, node, words: [words.toLowerCase(), plain(words), plain(words.replace(/-/g, " "))].join(" ") };
  });
  const filter = (query) => {
    const asked = query.toLowerCase().split(/\s+/);
    const having = (parts) => rows.filter(({ words }) => parts.every((part) => words.includes(part)));
    const phrase = having([asked.join(" ")]); // "no norm" is not each "no" beside a norm
    const found = phrase.length ? phrase : having(asked);
    rows.forEach((row) => { row.node.hidden = !found.includes(row); });
    groups.forEach((group) => { group.hidden = !group.querySelector(".ex-option:not([hidden])"); });
    return found;
  };
  return { nodes: [...groups.values()], filter, count: rows.length };
}

/** Puts a popup of the top layer below its entry, or above where there is more room. */
function placeBelow(popup, input) {
  const { left, top, bottom, width } = input.getBoundingClientRect();
  const { clientWidth } = document.documentElement;
  const height = window.visualViewport?.height ?? window.innerHeight; // a telephone's keyboard takes from it
  const above = height - bottom < ROOM && top > height - bottom;
  const wide = Math.min(Math.max(width, WIDEST), clientWidth - 16);
  Object.assign(popup.style, {
    left: `${Math.max(8, Math.min(left, clientWidth - wide - 8))}px`, width: `${wide}px`,
    top: above ? "auto" : `${bottom + 4}px`, bottom: above ? `${window.innerHeight - top + 4}px` : "auto",
    maxHeight: `${(above ? top : height - bottom) - 12}px`,
  });
}

/** The popup: `show` has the options of a query, one of them active; `step` goes to the next, `take` chooses it. */
function optionPopup(field, id, choose, point) {
  let found = [];
  let active = null;
  const { nodes, filter, count } = optionGroups(field.options, id, choose);
  const list = make("div", { class: "ex-options", id: `${id}-list`, role: "listbox", "aria-label": field.label },
    ...nodes);
  const said = make("p", { class: "ex-option-count", role: "status" });
  const popup = make("div", { class: "ex-popup", popover: "manual", onmousedown: (event) => event.preventDefault() },
    said, list); // a click there leaves the focus in the entry
  const activate = (row) => {
    active?.node.setAttribute("aria-selected", "false");
    active = row ?? null;
    active?.node.setAttribute("aria-selected", "true");
    active?.node.scrollIntoView({ block: "nearest" });
    point(active?.node.id ?? "");
  };
  const show = (query, current) => {
    found = filter(query);
    said.textContent = found.length ? `${found.length} of ${count}` : `None of ${count} has these words`;
    list.hidden = found.length === 0;
    const named = found.find(({ option }) => plain(option.label).includes(plain(query))); // not only spoken of
    activate(query ? named ?? found[0] : found.find(({ option }) => option.value === current));
  };
  const step = (by) => {
    const at = found.indexOf(active);
    activate(at < 0 ? found.at(by > 0 ? 0 : -1) : found.at((at + by) % found.length));
  };
  return { popup, list, count, show, step, take: () => active && choose(active.option) };
}

/** A look of `controls.js`. An option without a group is shown where it is the value, and never offered. */
function search(field, id, send) {
  let value = "";
  const point = (option) => input.setAttribute("aria-activedescendant", option);
  const choose = (option) => { close(); send(option.value); };
  const { popup, list, count, show, step, take } = optionPopup(field, id, choose, point);
  const isOpen = () => popup.matches(":popover-open");
  const place = () => placeBelow(popup, input);
  const keys = {
    ArrowDown: () => (isOpen() ? step(1) : open()), ArrowUp: () => (isOpen() ? step(-1) : open()),
    Enter: () => (isOpen() ? take() : open()), Escape: () => close(),
  };
  const grasp = (event) => { // a browser's own answer would take the selection away again
    if (isOpen()) return;
    event.preventDefault();
    input.focus();
    open();
  };
  const input = make("input", {
    class: "ex-search", id, type: "text", role: "combobox", autocomplete: "off", spellcheck: "false",
    "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": list.id,
    placeholder: `Search ${count} by name, words or paper`,
    oninput: () => { open(); show(input.value.trim(), value); },
    onmousedown: grasp, onclick: () => open(), onblur: () => close(),
    onkeydown: (event) => { if (keys[event.key]) { event.preventDefault(); keys[event.key](); } },
  });
  const label = () => field.options.find((option) => option.value === value)?.label ?? "";
  const listen = (turn) => ["scroll", "resize"].forEach((name) => window[`${turn}EventListener`](name, place, true));

  function open() {
    if (isOpen()) return;
    if (input.value === label()) input.select(); // what is typed takes its place
    popup.showPopover();
    place();
    show("", value);
    input.setAttribute("aria-expanded", "true");
    listen("add");
  }
  function close() {
    if (!isOpen()) return;
    popup.hidePopover();
    point("");
    input.value = label();
    input.setAttribute("aria-expanded", "false");
    listen("remove");
  }
  const paint = (chosen) => {
    value = chosen;
    if (!isOpen()) input.value = label();
  };
  return { below: [make("div", { class: "ex-searched" }, input, popup)], paint };
}
