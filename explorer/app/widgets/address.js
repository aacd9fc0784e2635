/* The page as a link: shown in the browser's address, shared, opened, undone, and remembered between visits.

   The kernel makes the link of the page's state. The address follows it: changes replace the current entry of the
   browser's history, and another tab or another step of a story adds an entry. Back and Forward send the entry's
   link to the kernel. In JupyterLab the address belongs to JupyterLab and stays untouched. */

const STEPS = ["tab", "story", "step"]; // parameters of the link whose change adds an entry to the history
const EMPTY_LIST = "none"; // stands in a link for a list of no parts, see `view.py`
const WRITE_AFTER = 300; // milliseconds: browsers refuse more than some hundred writes in half a minute

/** Whether the page owns the address, as it does in Voilà. */
const hasAddress = () => "voila" in document.body.dataset;

/** The link in the address. A lesson writes it after a #, so that JupyterLab opens the notebook before it. */
const addressLink = () => location.search || location.hash.replace(/^#/, "?");

/** The link in a form that others can open: an address, or in JupyterLab the argument of `ex.dashboard`. */
const shareable = (link) => (hasAddress() ? location.origin + location.pathname + link : link);

/** A text that the browser keeps between visits, or in this tab alone by `sessionStorage`. Without the visitor's permission
    to store, it is always empty. */
const browserStorage = (key, storage = "localStorage") => ({
  get() {
    try { return window[storage].getItem(key) ?? ""; } catch { return ""; }
  },
  set(text) {
    try { window[storage].setItem(key, text); } catch { /* the next visit then starts without it */ }
  },
});
const lastLink = browserStorage("transformer-signal-explorer: the last page here");

/** Keeps the address and the link the same. Returns a function that stops. */
function followAddress(model) {
  let timer = null;
  let openRequests = 0; // uses of Back or Forward without an answer: until then, links are of the entry that was left
  let previous = model.get("link");
  const writeAddress = (link, method) => {
    if (location.search !== link) history[method](null, "", link || location.pathname);
  };
  const onLink = () => {
    const link = model.get("link");
    if (link === null) return;
    const [now, before] = [new URLSearchParams(link), new URLSearchParams(previous ?? "")];
    const push = previous !== null && !openRequests && STEPS.some((key) => now.get(key) !== before.get(key));
    if (previous !== null) lastLink.set(link);
    previous = link;
    clearTimeout(timer);
    if (push) writeAddress(link, "pushState");
    else if (!openRequests) timer = setTimeout(() => writeAddress(model.get("link"), "replaceState"), WRITE_AFTER);
  };
  const onAnswer = () => {
    openRequests -= 1;
    if (!openRequests) writeAddress(model.get("link"), "replaceState");
  };
  const onPopState = () => {
    clearTimeout(timer);
    openRequests += 1;
    model.act(["open", location.search], onAnswer);
  };
  model.on("change:link", onLink);
  return callAll([() => model.off("change:link", onLink), listen(window, "popstate", onPopState)]);
}

const TEXT_ENTRY = "textarea, input:not([type=range], [type=checkbox], [type=radio], [type=file])";

/** Undoes at Ctrl+Z and redoes at Ctrl+Shift+Z or Ctrl+Y (⌘ on a Mac), except in an entry that has its own undo.

    JupyterLab saves at Ctrl+S, but ignores the keys of elements with OWN_KEYS. Such a press is therefore dispatched
    once more at the page's root. */
function followKeys(model, el) {
  const onkeydown = (event) => {
    const page = el.closest(".ex-root");
    if (!(event.ctrlKey || event.metaKey) || event.altKey || (!hasAddress() && !page?.contains(event.target))) return;
    const key = event.key.toLowerCase();
    if (key === "s" && !hasAddress() && event.isTrusted) {
      if (!page.dispatchEvent(new KeyboardEvent("keydown", event))) event.preventDefault();
    }
    if (event.target.matches?.(TEXT_ENTRY)) return;
    const verb = key === "y" || (key === "z" && event.shiftKey) ? "redo" : key === "z" ? "undo" : "";
    if (!verb) return;
    event.preventDefault();
    event.stopPropagation();
    model.act([verb]);
  };
  return listen(document, "keydown", onkeydown);
}

/** Selects and copies the text of a field. Resolves to false where the browser gives this address no clipboard. */
async function copyText(field) {
  field.select();
  try {
    await navigator.clipboard.writeText(field.value);
    return true;
  } catch {
    return false;
  }
}

/** An entry for a link, or for text with one. */
const linkEntry = (label, attributes) => make("input", {
  class: "ex-entry ex-link-text", type: "text", "aria-label": label, ...OWN_KEYS, ...attributes });

/** A line of text that can be copied: `paint` shows the text that `write` makes. */
function copyRow(title, words, label, write) {
  const status = make("p", { class: "ex-hint", role: "status" });
  const text = linkEntry(label, { readonly: "true" });
  const copy = button("Copy", "ex-button ex-primary", async () => {
    status.textContent = await copyText(text) ? "Copied." : "Selected: copy it with Ctrl+C.";
  }, { "aria-label": `Copy: ${label}` });
  const node = make("div", {}, make("p", {}, make("b", {}, title), ` ${words}`),
    make("div", { class: "ex-row" }, text, copy), status);
  const paint = () => { status.textContent = ""; text.value = write(); };
  return { node, text, paint };
}

/** The node of each part of the Explore panel that a link can hide, by the group and the name of the part. */
function partNodes(root, groups) {
  const cells = root.querySelectorAll(".ex-charts > .ex-cell"); // of the first panel that was built, in the groups' order
  const charts = groups.charts.parts.map(([name, words], index) => [name, words, cells[index]]);
  const controls = groups.show.parts.map(([name, words]) => (
    [name, words, root.querySelector(`.ex-side [data-field="${name === "design" ? "preset" : name}"]`)]));
  return { charts, show: controls };
}

/** The choice of the parts that stay on the page of a lesson: each is outlined, and a click on it toggles it.

    `root` gives the page's element, and `onDone` is called when a person has chosen. */
class PartsChoice {
  chosen = {}; // the name of a group to the set of names that stay
  added = []; // nodes on the page while a person chooses
  paints = []; // a function for each toggle
  stopKeys = () => {};

  constructor(model, root, onDone) {
    Object.assign(this, { model, root, onDone, groups: model.get("parts") });
  }

  namesOf(group) {
    return this.groups[group].parts.map(([name]) => name);
  }

  /** Chooses what a link shows; a part is named by its name, or by its control's label. */
  readLink() {
    const parameters = new URLSearchParams(this.model.get("link") ?? "");
    for (const [group, { parts }] of Object.entries(this.groups)) {
      const names = parameters.get(group)?.split(",");
      const staying = parts.filter((part) => !names || part.some((word) => names.includes(word)));
      this.chosen[group] = new Set(staying.map(([name]) => name));
    }
  }

  /** The value of a group in a link; empty where it is not limited. */
  value(group) {
    const names = this.namesOf(group).filter((name) => this.chosen[group].has(name));
    if (!names.length) return this.groups[group].none ? EMPTY_LIST : "";
    return names.length < this.groups[group].parts.length ? names.join(",") : "";
  }

  /** A link with what was chosen. */
  apply(link) {
    const groups = Object.keys(this.groups);
    const isOther = (part) => !groups.some((group) => part.startsWith(`${group}=`));
    const others = link.slice(1).split("&").filter((part) => part && isOther(part));
    const limits = groups.filter((group) => this.value(group)).map((group) => `${group}=${this.value(group)}`);
    const parameters = [...others, ...limits];
    return parameters.length ? `?${parameters.join("&")}` : "";
  }

  paint() {
    this.paints.forEach((paint) => paint());
  }

  toggle(group, name, words, look) {
    const node = button("", look, () => {
      const names = this.chosen[group], isLast = names.size === 1 && names.has(name);
      if (isLast && !this.groups[group].none) return; // a page has a tab
      if (!names.delete(name)) names.add(name);
      this.paint();
    }, { role: "checkbox", "aria-label": `${words} stays`, title: `${words}: click to keep or to hide` });
    this.paints.push(() => node.setAttribute("aria-checked", String(this.chosen[group].has(name))));
    return node;
  }

  /** Lays a toggle over each part of the panel. */
  cover(group, [name, words, node]) {
    if (!node) return;
    const toggle = this.toggle(group, name, words, "ex-choice");
    node.append(toggle);
    this.added.push(toggle);
  }

  /** The bar with the tabs, and buttons for whole groups. */
  bar() {
    const tabs = this.groups.panels.parts.map(([name, words]) => {
      const tab = this.toggle("panels", name, words, "ex-button ex-choice-tab");
      tab.textContent = words;
      return tab;
    });
    const all = (words, group, names) => button(words, "ex-link", () => {
      this.chosen[group] = new Set(names);
      this.paint();
    }, { "aria-label": `${this.groups[group].title}: ${words}` });
    const wholeGroups = ["charts", "show"].flatMap((group) => [
      `${this.groups[group].title}: `, all("all", group, this.namesOf(group)), " ", all("none", group, []), " "]);
    const done = button("Done", "ex-button ex-primary", () => { this.end(); this.onDone(); });
    const cancel = button("Cancel", "ex-link", () => this.end());
    const node = make("div", { class: "ex-choosing-bar", role: "group", "aria-label": "Choose what stays" },
      make("p", {}, make("b", {}, "Click what stays.")), make("div", {}, ...tabs), make("div", {}, ...wholeGroups), done, cancel);
    return { node, done };
  }

  start() {
    const { node, done } = this.bar(), root = this.root();
    for (const [group, rows] of Object.entries(partNodes(root, this.groups))) rows.forEach((row) => this.cover(group, row));
    this.added.push(node);
    root.append(node);
    root.classList.add("ex-choosing");
    this.stopKeys = listen(document, "keydown", ({ key }) => key === "Escape" && this.end());
    if (this.model.get("selected")) this.model.change({ selected: 0 }); // the panel whose parts can be chosen
    this.paint();
    done.focus();
  }

  end() {
    this.stopKeys();
    this.added.splice(0).forEach((node) => node.remove());
    this.paints = [];
    this.root()?.classList.remove("ex-choosing");
  }
}

/** The link as a QR code, drawn by the kernel when asked for. */
function codeBox(model, link) {
  const drawing = make("div", { class: "ex-share-code", role: "img", "aria-label": "QR code of the link" });
  const ask = button("QR code", "ex-link", () => model.act(["code", link()]),
    { title: "The link as a picture, for a telephone" });
  const end = follow(model, "code", () => {
    drawing.replaceChildren(...parsedHtml(model.get("code")).children);
    if (drawing.children.length) bringIntoView(drawing);
  });
  return { node: make("div", {}, ask, drawing), paint: () => drawing.replaceChildren(), end };
}

/** The popup of the Share button: the page's link, what it shows, the code of a frame and a picture of it; and an entry
    for another link. */
function shareBox(model, el) {
  const paint = () => rows.forEach((row) => row.paint());
  let isChosen = false; // whether the link is of what was just chosen
  const parts = new PartsChoice(model, () => el.closest(".ex-root"), () => {
    isChosen = true;
    el.querySelector(".ex-share-open").click();
  });
  const lesson = button("For a lesson: choose what stays", "ex-link", () => {
    box.hidePopover();
    parts.start();
  });
  const link = () => shareable(parts.apply(model.get("link") ?? ""));
  const page = copyRow("Link to this page.", hasAddress() ? "Whoever opens it sees this page as it is now."
    : "In a notebook: ex.dashboard(\"…\"), with this text.", "Link to this page", link);
  const code = codeBox(model, link);
  const rows = [page, ...hasAddress() ? [
    copyRow("Within another page.", "The code of a frame.", "Code of a frame with this page", () => (
      `<iframe src="${link().replaceAll("&", "&amp;")}&amp;embed=1" title="${model.get("name")}" width="100%" height="800">`
      + "</iframe>")), code] : []];
  const otherLink = linkEntry("Another link", {
    placeholder: "?design=post_ln&n_layers=24", onkeydown: (event) => event.key === "Enter" && open(),
  });
  const open = () => {
    if (!otherLink.value.trim()) return;
    model.act(["open", otherLink.value.trim()]);
    otherLink.value = "";
    box.hidePopover();
  };
  const box = make("div", { class: "ex-share", popover: "auto", role: "dialog", "aria-label": "Share this page" },
    page.node, make("div", {}, lesson), ...rows.slice(1).map((row) => row.node),
    make("p", {}, make("b", {}, "Open a link. "), "Yours stays one step back, under Undo."),
    make("div", { class: "ex-row" }, otherLink, button("Open", "ex-button", open)));
  box.addEventListener("toggle", (event) => {
    if (event.newState !== "open") return;
    if (!isChosen) {
      parts.end();
      parts.readLink();
    }
    isChosen = false;
    paint();
    page.text.focus();
    page.text.setSelectionRange(0, page.text.value.length, "backward"); // scrolls to the beginning of the link
  });
  return { box, end: callAll([code.end, () => parts.end()]) };
}

const THEMES = { "": "As the system", light: "Light", dark: "Dark", projector: "Projector" };

/** The popup of the menu: these buttons, and the choice of colors, which the browser keeps between visits. */
function menuBox(el, items) {
  const stored = browserStorage("transformer-signal-explorer: colors");
  const paint = () => requestAnimationFrame(() => { el.closest(".ex-root").dataset.theme = select.value; });
  const select = make("select", { id: "ex-theme", ...OWN_KEYS, onchange: () => { stored.set(select.value); paint(); } },
    ...Object.entries(THEMES).map(([value, words]) => new Option(words, value)));
  select.value = stored.get() in THEMES ? stored.get() : "";
  paint();
  const box = make("div", { class: "ex-share ex-menu", popover: "auto", role: "dialog", "aria-label": "Menu" }, ...items,
    make("label", {}, "Colors ", select));
  items.forEach((item) => item.addEventListener("click", () => box.hidePopover()));
  return box;
}

/** The line below the header: the kernel's message about a link, or the offer to return to the last visit's page.

    `withdrawOffer` is for a person who already works on this page. */
function messageLine(model) {
  const storedLink = hasAddress() && !addressLink() ? lastLink.get() : "";
  let isOffered = Boolean(storedLink);
  const withdrawOffer = () => { isOffered = false; paint(); };
  const message = make("span", {});
  const resume = button("Go on where you left off", "ex-button", () => {
    withdrawOffer();
    model.act(["open", storedLink]);
  });
  const close = button("Close", "ex-link", () => { withdrawOffer(); line.hidden = true; });
  const line = make("div", { class: "ex-header-said", role: "status" }, message, resume, close);
  function paint() {
    const text = model.get("said");
    message.textContent = text;
    resume.hidden = !isOffered || Boolean(text);
    line.hidden = !text && !isOffered;
  }
  return { line, end: follow(model, "said", paint), withdrawOffer: () => isOffered && withdrawOffer() };
}

/** A button that opens a popup below it. */
function popupButton(model, label, className, box, title) {
  const opener = button(label, `ex-tool ${className}`, () => model.page.settled(() => {
    placeBelow(box, opener);
    box.togglePopover();
  }), { title, "aria-haspopup": "dialog" });
  return opener;
}

/** The tools of the whole page: stories, undo, redo, share, the menu, and the line of messages. */
function tools(model, el) {
  const tool = (label, verb, title) => button(label, "ex-tool", () => model.act([verb]), { title });
  const icon = (sign, name) => make("span", {}, make("span", { "aria-hidden": "true" }, sign),
    make("span", { class: "ex-spoken" }, name));
  const undo = tool(icon("↶", "Undo"), "undo", "Undo the last change (Ctrl+Z)");
  const redo = tool(icon("↷", "Redo"), "redo", "Make it again (Ctrl+Shift+Z)");
  const reset = tool("Reset all", "reset", "Everything as on the first visit; Undo brings it back");
  const stories = tool("Stories", "stories", "Short tours of the page");
  const { box, end: endShare } = shareBox(model, el);
  const share = popupButton(model, "Share", "ex-share-open", box, "A link to the page as it is now");
  const glossaryButton = button("Glossary", "ex-tool ex-glossary-open", () => openGlossary(el.closest(".ex-root")),
    { "aria-haspopup": "dialog" });
  const menu = menuBox(el, [reset, glossaryButton]);
  const menuButton = popupButton(model, icon("☰", "Menu"), "ex-menu-open", menu, "Reset, glossary, colors");
  const { line, end, withdrawOffer } = messageLine(model);
  const ends = [end, endShare, followKeys(model, el), follow(model, "undoes redoes", () => {
    undo.disabled = !model.get("undoes");
    redo.disabled = !model.get("redoes");
    if (model.get("undoes")) withdrawOffer();
  }), follow(model, "stories", () => { stories.hidden = !model.get("stories"); })];
  if (hasAddress()) ends.push(followAddress(model));
  const bar = make("div", { class: "ex-tools", role: "group", "aria-label": "The whole page" },
    stories, undo, redo, share, menuButton);
  return { nodes: [bar, line, box, menu], end: callAll(ends) };
}
