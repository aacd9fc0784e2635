/* The page as a link: shown in the browser's address, shared, opened, undone, and remembered between visits.

   The kernel makes the link of the page's state. The address follows it: changes replace the current entry of the
   browser's history, and another tab or another step of a story adds an entry. Back and Forward send the entry's
   link to the kernel. In JupyterLab the address belongs to JupyterLab and stays untouched. */

const STEPS = ["tab", "story", "step"]; // parameters of the link whose change adds an entry to the history
const WRITE_AFTER = 300; // milliseconds: browsers refuse more than some hundred writes in half a minute

/** Whether the page owns the address, as it does in Voilà. */
const hasAddress = () => "voila" in document.body.dataset;

/** The link in a form that others can open: an address, or in JupyterLab the argument of `ex.dashboard`. */
const shareable = (link) => (hasAddress() ? location.origin + location.pathname + link : link || "?v=1");

/** A text that the browser keeps between visits. Without the visitor's permission to store, it is always empty. */
const browserStorage = (key) => ({
  get() {
    try { return localStorage.getItem(key) ?? ""; } catch { return ""; }
  },
  set(text) {
    try { localStorage.setItem(key, text); } catch { /* the next visit then starts without it */ }
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
    const { state_change: earlierStates } = model.set({}); // `set` returns the model, see `requestMissedState`
    sendAct(model, ["open", location.search], undefined, () => Promise.resolve(earlierStates).then(onAnswer));
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
    press(model, [verb]);
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

/** The popup of the Share button: the page's link with a button that copies it, and an entry for another link. */
function shareBox(model) {
  const entry = (label, attributes) => make("input", {
    class: "ex-entry ex-link-text", type: "text", "aria-label": label, ...OWN_KEYS, ...attributes });
  const link = entry("Link to this page", { readonly: "true" });
  const status = make("p", { class: "ex-hint", role: "status" });
  const otherLink = entry("Another link", {
    placeholder: "?design=post_ln&n_layers=24", onkeydown: (event) => event.key === "Enter" && open(),
  });
  const copy = async () => {
    status.textContent = await copyText(link) ? "Copied." : "Selected: copy it with Ctrl+C.";
  };
  const open = () => {
    if (!otherLink.value.trim()) return;
    press(model, ["open", otherLink.value.trim()]);
    otherLink.value = "";
    box.hidePopover();
  };
  const usage = hasAddress() ? "Whoever opens it sees this page as it is now."
    : "In a notebook: ex.dashboard(\"…\"), with this text.";
  const box = make("div", { class: "ex-share", popover: "auto", role: "dialog", "aria-label": "Share this page" },
    make("p", {}, make("b", {}, "Link to this page. "), usage),
    make("div", { class: "ex-row" }, link, button("Copy", "ex-button ex-primary", copy)), status,
    make("p", {}, make("b", {}, "Open a link. "), "Yours stays one step back, under Undo."),
    make("div", { class: "ex-row" }, otherLink, button("Open", "ex-button", open)));
  box.addEventListener("toggle", (event) => {
    if (event.newState !== "open") return;
    status.textContent = "";
    link.value = shareable(model.get("link") ?? "");
    link.focus();
    link.setSelectionRange(0, link.value.length, "backward"); // scrolls to the beginning of the link
  });
  return box;
}

/** The line below the header: the kernel's message about a link, or the offer to return to the last visit's page.

    `withdrawOffer` is for a person who already works on this page. */
function messageLine(model) {
  const storedLink = hasAddress() && !location.search ? lastLink.get() : "";
  let isOffered = Boolean(storedLink);
  const withdrawOffer = () => { isOffered = false; paint(); };
  const message = make("span", {});
  const resume = button("Go on where you left off", "ex-button", () => {
    withdrawOffer();
    press(model, ["open", storedLink]);
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

/** The tools of the whole page: stories, undo, redo, reset, share, glossary, and the line of messages. */
function tools(model, el) {
  const tool = (label, verb, title) => button(label, "ex-tool", () => press(model, [verb]), { title });
  const icon = (sign, name) => make("span", {}, make("span", { "aria-hidden": "true" }, sign),
    make("span", { class: "ex-spoken" }, name));
  const undo = tool(icon("↶", "Undo"), "undo", "Undo the last change (Ctrl+Z)");
  const redo = tool(icon("↷", "Redo"), "redo", "Make it again (Ctrl+Shift+Z)");
  const reset = tool("Reset all", "reset", "Everything as on the first visit; Undo brings it back");
  const stories = button("Stories", "ex-tool", () => {
    const folded = el.closest(".ex-root").querySelector(".ex-stories-offer:not([hidden], .ex-unfolded) .ex-unfold");
    if (folded) folded.click();
    else press(model, ["stories"]);
  }, { title: "Short tours of the page" });
  const box = shareBox(model);
  const share = button("Share", "ex-tool ex-share-open", () => afterChanges(model, () => {
    placeBelow(box, share);
    box.togglePopover();
  }), { title: "A link to the page as it is now", "aria-haspopup": "dialog" });
  const glossaryButton = button("Glossary", "ex-tool ex-glossary-open", () => openGlossary(el.closest(".ex-root")),
    { "aria-haspopup": "dialog" });
  const { line, end, withdrawOffer } = messageLine(model);
  const ends = [end, followKeys(model, el), follow(model, "undoes redoes", () => {
    undo.disabled = !model.get("undoes");
    redo.disabled = !model.get("redoes");
    if (model.get("undoes")) withdrawOffer();
  }), follow(model, "stories", () => { stories.hidden = !model.get("stories"); })];
  if (hasAddress()) ends.push(followAddress(model));
  const bar = make("div", { class: "ex-tools", role: "group", "aria-label": "The whole page" },
    stories, undo, redo, reset, share, glossaryButton);
  return { nodes: [bar, line, box], end: callAll(ends) };
}
