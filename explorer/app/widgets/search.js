/* A searchable list after the WAI-ARIA combobox pattern: an entry filters options in groups.

   The focus stays in the entry; its `aria-activedescendant` is the option that Enter takes. The list is a popup in
   the top layer, where no box clips it. */

const POPUP_HEIGHT = 280; // pixels below the entry that are enough; with less, the list opens where there is more
const POPUP_WIDTH = 420;
const normalized = (text) => text.toLowerCase().replace(/[^\p{L}\p{N}\s]/gu, "");

/** The options as nodes in groups, each with the text that a query is compared with. */
function optionRows(options, id, choose) {
  const groups = new Map();
  const rows = options.filter(({ group }) => group).map((option, index) => {
    const node = make("div", {
      class: "ex-option", role: "option", id: `${id}-${index}`, "data-value": option.value, "aria-selected": "false",
      onclick: () => choose(option),
    }, make("span", { class: "ex-option-title" }, ...typeset(option.label)),
    make("span", { class: "ex-option-words" }, ...typeset(option.formula)));
    const title = `${id}-group-${groups.size}`;
    if (!groups.has(option.group)) {
      groups.set(option.group, make("div", { class: "ex-option-group", role: "group", "aria-labelledby": title },
        make("div", { class: "ex-option-head", id: title, role: "presentation" }, option.group)));
    }
    groups.get(option.group).append(node);
    const text = `${option.find} ${option.group}`;
    const words = [text.toLowerCase(), normalized(text), normalized(text.replace(/-/g, " "))].join(" ");
    return { option, node, words };
  });
  return { groups: [...groups.values()], rows };
}

/** Shows and returns the rows that contain the query as a phrase, or, where none does, each of its words. */
function filterRows({ groups, rows }, query) {
  const words = query.toLowerCase().split(/\s+/);
  const containing = (parts) => rows.filter((row) => parts.every((part) => row.words.includes(part)));
  const phrase = containing([words.join(" ")]); // "no norm" must not match every "no" beside a norm
  const matches = phrase.length ? phrase : containing(words);
  rows.forEach((row) => { row.node.hidden = !matches.includes(row); });
  groups.forEach((group) => { group.hidden = !group.querySelector(".ex-option:not([hidden])"); });
  return matches;
}

/** Places a popup of the top layer below its anchor, or above where there is more room. */
function placeBelow(popup, anchor) {
  const { left, top, bottom, width } = anchor.getBoundingClientRect();
  const { clientWidth } = document.documentElement;
  const height = window.visualViewport?.height ?? window.innerHeight; // without the keyboard of a telephone
  const isAbove = height - bottom < POPUP_HEIGHT && top > height - bottom;
  const popupWidth = Math.min(Math.max(width, POPUP_WIDTH), clientWidth - 16);
  Object.assign(popup.style, {
    left: `${Math.max(8, Math.min(left, clientWidth - popupWidth - 8))}px`, width: `${popupWidth}px`,
    top: isAbove ? "auto" : `${bottom + 4}px`, bottom: isAbove ? `${window.innerHeight - top + 4}px` : "auto",
    maxHeight: `${(isAbove ? top : height - bottom) - 12}px`,
  });
}

/** Keeps an open popup below its anchor. Returns a function that stops. */
function keepBelow(popup, anchor) {
  placeBelow(popup, anchor);
  return listen(window, "scroll resize", () => placeBelow(popup, anchor), true);
}

/** The popup of options below its `input`. `show` filters them by a query and activates an option, `step` activates
    the next, `take` chooses the active option. */
function optionPopup(field, id, input, choose) {
  let matches = [], active = null, stopPlacing;
  const options = optionRows(field.options, id, choose);
  const list = make("div", { class: "ex-options", id: `${id}-list`, role: "listbox", "aria-label": field.label },
    ...options.groups);
  const status = make("p", { class: "ex-option-count", role: "status" });
  const keepFocus = (event) => event.preventDefault(); // a click in the popup leaves the focus in the entry
  const node = make("div", { class: "ex-popup", popover: "manual", onmousedown: keepFocus }, status, list);
  const activate = (row) => {
    active?.node.setAttribute("aria-selected", "false");
    active = row ?? null;
    active?.node.setAttribute("aria-selected", "true");
    active?.node.scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", active?.node.id ?? "");
  };
  const show = (query, value) => {
    matches = filterRows(options, query);
    const count = options.rows.length;
    status.textContent = matches.length ? `${matches.length} of ${count}` : `None of ${count} has these words`;
    list.hidden = matches.length === 0;
    // An option with the query in its name goes before one that only mentions it.
    const byName = matches.find(({ option }) => normalized(option.label).includes(normalized(query)));
    activate(query ? byName ?? matches[0] : matches.find(({ option }) => option.value === value));
  };
  const step = (by) => {
    const index = matches.indexOf(active);
    activate(index < 0 ? matches.at(by > 0 ? 0 : -1) : matches.at((index + by) % matches.length));
  };
  const isOpen = () => node.matches(":popover-open");
  const open = () => { node.showPopover(); stopPlacing = keepBelow(node, input); };
  const close = () => { node.hidePopover(); stopPlacing(); input.setAttribute("aria-activedescendant", ""); };
  return { node, show, step, take: () => active && choose(active.option), isOpen, open, close };
}

/** A look of `controls.js`. An option without a group is never offered, but may be the value. */
function search(field, id, send) {
  let value = "";
  const label = () => field.options.find((option) => option.value === value)?.label ?? "";
  const open = () => {
    if (popup.isOpen()) return;
    if (input.value === label()) input.select(); // typing replaces the label
    popup.open();
    popup.show("", value);
    input.setAttribute("aria-expanded", "true");
  };
  const close = () => {
    if (!popup.isOpen()) return;
    popup.close();
    input.value = label();
    input.setAttribute("aria-expanded", "false");
  };
  const keys = {
    ArrowDown: () => (popup.isOpen() ? popup.step(1) : open()),
    ArrowUp: () => (popup.isOpen() ? popup.step(-1) : open()),
    Enter: () => (popup.isOpen() ? popup.take() : open()), Escape: close,
  };
  const input = make("input", {
    class: "ex-search", id, type: "text", role: "combobox", autocomplete: "off", spellcheck: "false",
    "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": `${id}-list`,
    placeholder: `Search ${field.options.filter(({ group }) => group).length} by name, words or paper`,
    oninput: () => { open(); popup.show(input.value.trim(), value); },
    onmousedown: (event) => {
      if (popup.isOpen()) return;
      event.preventDefault(); // or the browser would undo the selection of the label
      input.focus();
      open();
    },
    onclick: open, onblur: close,
    onkeydown: (event) => { if (keys[event.key]) { event.preventDefault(); keys[event.key](); } },
  });
  const popup = optionPopup(field, id, input, (option) => { close(); send(option.value); });
  const paint = (newValue) => { value = newValue; if (!popup.isOpen()) input.value = label(); };
  return { below: [make("div", { class: "ex-searched" }, input, popup.node)], paint };
}
