/* The page as a link: kept in the address where the page has one of its own, shared, undone, and remembered.

   The kernel says what the link is. The address follows it: in place while a person works, as a new entry of the
   browser's history when they go to another tab or another step of a story. Back and Forward hand a link back. */

const STEPS = ["tab", "story", "step"]; // what makes a new entry
const WRITE_AFTER = 300; // milliseconds: browsers refuse more than some hundred writes in half a minute
const MEMORY = "transformer-signal-explorer: the last page here";

/** In JupyterLab the address is not ours. */
const hasAddress = () => "voila" in document.body.dataset;

/** The link as others can open it: an address, or the text that `ex.dashboard` takes. */
const shareable = (link) => (hasAddress() ? location.origin + location.pathname + link : link || "?v=1");

/** What the browser remembers between visits; a visitor may have forbidden it. */
const memory = {
  get() {
    try { return localStorage.getItem(MEMORY) ?? ""; } catch { return ""; }
  },
  set(link) {
    try { localStorage.setItem(MEMORY, link); } catch { /* then the next visit starts anew */ }
  },
};

/** Keeps the address in step with the link; returns what ends it. */
function followAddress(model) {
  let timer = null;
  let backs = 0; // of the browser, which the kernel has not answered: links until then are of entries that were left
  let before = model.get("link");
  const write = (link, push) => {
    clearTimeout(timer);
    const target = link || location.pathname;
    if (location.search === link) return;
    if (push) history.pushState(null, "", target);
    else history.replaceState(null, "", target);
  };
  const changed = () => {
    const link = model.get("link");
    if (link === null) return;
    const [now, then] = [new URLSearchParams(link), new URLSearchParams(before ?? "")];
    const push = before !== null && !backs && STEPS.some((key) => now.get(key) !== then.get(key));
    if (before !== null) memory.set(link);
    before = link;
    clearTimeout(timer);
    if (push) write(link, true);
    else if (!backs) timer = setTimeout(() => write(model.get("link"), false), WRITE_AFTER);
  };
  const arrived = () => {
    backs -= 1;
    if (!backs) write(model.get("link"), false);
  };
  const back = () => {
    clearTimeout(timer);
    backs += 1;
    const { state_change: taken } = model.set({}); // the model itself, see `hear`: states that came before the answer
    sendAct(model, ["open", location.search], undefined, () => Promise.resolve(taken).then(arrived));
  };
  model.on("change:link", changed);
  window.addEventListener("popstate", back);
  return () => {
    model.off("change:link", changed);
    window.removeEventListener("popstate", back);
  };
}

/** Ctrl+Z and Ctrl+Shift+Z, or ⌘, wherever nothing else on the page would take them; Ctrl+S is JupyterLab's, which hears
    no key of what has OWN_KEYS: it is sent once more, as the page's. */
function followKeys(model, el) {
  const typed = (node) => node.matches?.("textarea, input:not([type=range], [type=checkbox], [type=radio], [type=file])");
  const onkeydown = (event) => {
    const page = el.closest(".ex-root");
    if (!(event.ctrlKey || event.metaKey) || event.altKey || (!hasAddress() && !page?.contains(event.target))) return;
    const key = event.key.toLowerCase();
    if (key === "s" && !hasAddress() && event.isTrusted) {
      if (!page.dispatchEvent(new KeyboardEvent("keydown", event))) event.preventDefault();
    }
    if (typed(event.target)) return;
    const verb = key === "y" || (key === "z" && event.shiftKey) ? "redo" : key === "z" ? "undo" : "";
    if (!verb) return;
    event.preventDefault();
    event.stopPropagation();
    press(model, [verb]);
  };
  document.addEventListener("keydown", onkeydown);
  return () => document.removeEventListener("keydown", onkeydown);
}

/** The box that Share opens: the link, a button that copies it, and a place for another one. */
function shareBox(model) {
  const text = make("input", { class: "ex-entry ex-link-text", type: "text", readonly: "true", "aria-label": "Link to this page", ...OWN_KEYS });
  const said = make("p", { class: "ex-hint", role: "status" });
  const other = make("input", {
    class: "ex-entry ex-link-text", type: "text", placeholder: "?design=post_ln&n_layers=24", "aria-label": "Another link", ...OWN_KEYS,
    onkeydown: (event) => event.key === "Enter" && open(),
  });
  const copy = async () => {
    text.select();
    try {
      await navigator.clipboard.writeText(text.value);
      said.textContent = "Copied.";
    } catch { // not allowed on this address
      said.textContent = "Selected: copy it with Ctrl+C.";
    }
  };
  const open = () => {
    if (!other.value.trim()) return;
    press(model, ["open", other.value.trim()]);
    other.value = "";
    box.hidePopover();
  };
  const how = hasAddress() ? "Whoever opens it sees this page as it is now." : "In a notebook: ex.dashboard(\"…\"), with this text.";
  const box = make("div", { class: "ex-share", popover: "auto", role: "dialog", "aria-label": "Share this page" },
    make("p", {}, make("b", {}, "Link to this page. "), how),
    make("div", { class: "ex-row" }, text, button("Copy", "ex-button ex-primary", copy)), said,
    make("p", {}, make("b", {}, "Open a link. "), "Yours stays one step back, under Undo."),
    make("div", { class: "ex-row" }, other, button("Open", "ex-button", open)));
  box.addEventListener("toggle", (event) => {
    if (event.newState !== "open") return;
    said.textContent = "";
    text.value = shareable(model.get("link") ?? "");
    text.focus();
    text.setSelectionRange(0, text.value.length, "backward"); // its beginning in sight
  });
  return box;
}

/** The tools of the page, and the line that says what came of a link. */
function tools(model, el) {
  const undo = button("Undo", "ex-tool", () => press(model, ["undo"]), { title: "Undo the last change (Ctrl+Z)" });
  const redo = button("Redo", "ex-tool", () => press(model, ["redo"]), { title: "Make it again (Ctrl+Shift+Z)" });
  const reset = button("Reset all", "ex-tool", () => press(model, ["reset"]), { title: "Everything as on the first visit; Undo brings it back" });
  const stories = button("Stories", "ex-tool", () => press(model, ["stories"]), { title: "Short tours of the page" });
  const box = shareBox(model);
  const share = button("Share", "ex-tool", () => afterChanges(model, () => { placeBelow(box, share); box.togglePopover(); }), { title: "A link to the page as it is now", "aria-haspopup": "dialog" });
  const said = make("span", {});
  const stored = hasAddress() && !location.search ? memory.get() : "";
  const again = button("Go on where you left off", "ex-button", () => { done(); press(model, ["open", stored]); });
  const close = button("Close", "ex-link", () => { done(); line.hidden = true; });
  const line = make("div", { class: "ex-header-said", role: "status" }, said, again, close);
  let offered = Boolean(stored);
  const done = () => { offered = false; paint(); };
  function paint() {
    const words = model.get("said");
    said.textContent = words;
    again.hidden = !offered || Boolean(words);
    line.hidden = !words && !offered;
  }
  const ends = [follow(model, "said", paint), followKeys(model, el), follow(model, "undoes redoes", () => {
    undo.disabled = !model.get("undoes");
    redo.disabled = !model.get("redoes");
    if (model.get("undoes") && offered) done(); // who works on does not want the last page
  })];
  ends.push(follow(model, "stories", () => { stories.hidden = !model.get("stories"); }));
  if (hasAddress()) ends.push(followAddress(model));
  const glossary = button("Glossary", "ex-tool ex-glossary-open", () => openGlossary(el.closest(".ex-root")), { "aria-haspopup": "dialog" });
  const bar = make("div", { class: "ex-tools", role: "group", "aria-label": "The whole page" }, stories, undo, redo, reset, share, glossary);
  return { nodes: [bar, line, box], end: () => ends.forEach((one) => one()) };
}
