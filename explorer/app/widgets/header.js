/* The head of the page: tabs follow the usual pattern (arrows move, one tab stop); its tools are in `address.js`. */

export default {
  render({ model, el }) {
    const name = model.get("name");
    become(el, name ? "ex-header" : "ex-subheader");
    const ends = [];
    if (name) el.append(button("Skip to the results", "ex-skip", () => goToResults(el)), make("h1", {}, name));
    const titles = model.get("tabs");
    if (titles.length > 1) ends.push(tabBar(model, el, titles));
    if (name) {
      el.exLabs = model.get("labs");
      el.exOpenLab = (lab) => openLab(model, el, lab);
      const { nodes, end } = tools(model, el);
      el.append(...nodes);
      ends.push(end);
      if (hasAddress()) ends.push(follow(model, "selected", () => { document.title = pageTitle(name, titles, model.get("selected")); }));
      model.send(["shown", hasAddress() ? location.search : ""]); // all widgets are there to receive what they missed
    }
    return () => ends.forEach((end) => end());
  },
};

/** The focus to what the open panel shows: its main part, or the first of it where a narrow page dissolves that. */
function goToResults(el) {
  const parts = el.closest(".ex-root").querySelectorAll(".ex-main, .ex-main :is(.ex-verdict, .ex-cell)");
  const results = [...parts].find((part) => part.checkVisibility({ visibilityProperty: true }));
  results?.setAttribute("tabindex", "-1");
  results?.focus();
}

/** The title of the browser's tab: the page's name alone on the first panel, as before any script has run. */
function pageTitle(name, panels, index) {
  return index > 0 && panels[index] ? `${panels[index]} · ${name}` : name;
}

/** The link is on a panel that goes: its focus to the tab that comes. */
function openLab(model, el, lab) {
  const arrive = () => {
    model.off("change:selected", arrive);
    el.querySelector("[aria-selected=true]")?.focus();
  };
  model.on("change:selected", arrive);
  press(model, ["lab", lab]);
}

function tabBar(model, el, titles) {
  const choose = (index) => {
    tabs[index].focus();
    afterChanges(model, () => { // the race is offered the design that the controls have when it is opened
      if (model.get("selected") === index) return;
      model.set("selected", index);
      sendChange(model);
    });
  };
  const tabs = titles.map((title, index) => button(title, "", () => choose(index), { role: "tab" }));
  const onkeydown = (event) => {
    const shown = tabs.filter((tab) => !tab.hidden);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const now = shown.indexOf(tabs[model.get("selected")]);
    if (step) choose(tabs.indexOf(shown[(now + step + shown.length) % shown.length]));
  };
  const bar = make("div", { class: "ex-tabs", role: "tablist", "aria-label": model.get("label"), onkeydown }, ...tabs);
  el.append(bar);
  return follow(model, "selected hidden", () => {
    tabs.forEach((tab, index) => {
      const chosen = index === model.get("selected");
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      tab.hidden = model.get("hidden").includes(index);
    });
    bar.hidden = tabs.filter((tab) => !tab.hidden).length < 2;
  });
}
