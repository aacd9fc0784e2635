/* The head of the page. Tabs follow the usual pattern: arrows move, one tab stop. */

export default {
  render({ model, el }) {
    el.classList.add(model.get("name") ? "ex-header" : "ex-subheader");
    if (model.get("name")) {
      model.send("shown"); // by now every widget of the page is there and can receive what it missed
      const name = document.createElement("h1");
      name.textContent = model.get("name");
      el.append(name);
    }
    const titles = model.get("tabs");
    if (titles.length < 2) return undefined;

    const bar = document.createElement("div");
    bar.className = "ex-tabs";
    bar.setAttribute("role", "tablist");
    bar.setAttribute("aria-label", model.get("label"));
    const tabs = titles.map((title, index) => {
      const tab = document.createElement("button");
      tab.type = "button";
      tab.textContent = title;
      tab.setAttribute("role", "tab");
      tab.setAttribute("data-lm-suppress-shortcuts", "true"); // JupyterLab would take the arrow keys
      tab.addEventListener("click", () => choose(index));
      return tab;
    });
    const choose = (index) => {
      tabs[index].focus();
      afterMoves(() => { // the race is offered the design that the controls have when it is opened
        model.set("selected", index);
        model.save_changes();
      });
    };
    bar.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) choose((model.get("selected") + step + tabs.length) % tabs.length);
    });
    const paint = () => tabs.forEach((tab, index) => {
      const chosen = index === model.get("selected");
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
    });
    bar.append(...tabs);
    el.append(bar);
    model.on("change:selected", paint);
    paint();
    return () => model.off("change:selected", paint);
  },
};
