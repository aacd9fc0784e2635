/* The header of the page. Its tools are in `address.js`.

   Tabs follow the WAI-ARIA pattern: the arrow keys move between them, and Tab stops at the chosen one only. */

const MOST_RETURNS = 4; // of the page to the window, by itself

export function header(model, el) {
  const name = model.get("name"), titles = model.get("tabs"), ends = [];
  become(el, "ex-header");
  el.append(button("Skip to the results", "ex-skip", () => focusResults(el)), make("h1", {}, name));
  if (titles.length > 1) ends.push(tabBar(model, el, titles));
  const { nodes, end } = tools(model, el);
  el.append(...nodes);
  ends.push(end);
  if (hasAddress()) {
    ends.push(follow(model, "selected", () => {
      document.title = pageTitle(name, titles, model.get("selected"));
    }));
  } else ends.push(keepInView(model, el));
  model.send(["shown", hasAddress() ? addressLink() : ""]);
  return callAll(ends);
}

/** Scrolls a new page back into the window until somebody does anything: JupyterLab's Run All goes on to the last cell,
    and leaves the page above the window as outputs come. One that was there before its notebook was opened stays. */
function keepInView(model, el) {
  const isNew = model.page.model.get("state").sent === 0;
  let left = isNew ? MOST_RETURNS : 0;
  const observer = new IntersectionObserver((entries) => {
    if (entries.at(-1).isIntersecting || !el.checkVisibility()) return;
    el.scrollIntoView({ block: "start" });
    left -= 1;
    if (left === 0) stop();
  });
  if (left) observer.observe(el);
  const stopListening = listen(window, "pointerdown keydown wheel touchstart", () => stop(), { capture: true });
  // a screen reader moves the focus without any of these
  const stopFollowing = listen(window, "focusin", ({ target }) => {
    if (el.closest(".ex-root")?.contains(target)) stop();
  });
  const stop = callAll([() => observer.disconnect(), stopListening, stopFollowing]);
  return stop;
}

/** Focuses the main part of the open panel. On a narrow page the main part has no box: then its first part. */
function focusResults(el) {
  const parts = el.closest(".ex-root").querySelectorAll(".ex-main, .ex-main :is(.ex-verdict, .ex-cell)");
  const results = [...parts].find((part) => part.checkVisibility({ visibilityProperty: true }));
  results?.setAttribute("tabindex", "-1");
  results?.focus();
}

/** The title of the browser's tab. On the first panel it is the page's name alone, as before any script has run. */
function pageTitle(name, panels, index) {
  return index > 0 && panels[index] ? `${panels[index]} · ${name}` : name;
}

function tabBar(model, el, titles) {
  const choose = (index) => {
    tabs[index].focus();
    if (model.get("selected") !== index) model.change({ selected: index });
  };
  const tabs = titles.map((title, index) => button(title, "", () => choose(index), { role: "tab" }));
  const onkeydown = (event) => {
    const visible = tabs.filter((tab) => !tab.hidden);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const current = visible.indexOf(tabs[model.get("selected")]);
    if (step) choose(tabs.indexOf(visible[(current + step + visible.length) % visible.length]));
  };
  const bar = make("div", { class: "ex-tabs", role: "tablist", "aria-label": "Panels", onkeydown }, ...tabs);
  el.append(bar);
  let shown = model.get("selected");
  /** Whatever has the focus within a panel is hidden with it when another one is opened. */
  const keepFocus = () => {
    const isOther = model.get("selected") !== shown;
    shown = model.get("selected");
    if (isOther && document.activeElement?.closest(".ex-panel")) tabs[shown].focus();
  };
  return follow(model, "selected hidden_tabs", () => {
    tabs.forEach((tab, index) => {
      const isSelected = index === model.get("selected");
      tab.setAttribute("aria-selected", String(isSelected));
      tab.tabIndex = isSelected ? 0 : -1;
      tab.hidden = model.get("hidden_tabs").includes(index);
    });
    bar.hidden = tabs.filter((tab) => !tab.hidden).length < 2;
    keepFocus();
  });
}
