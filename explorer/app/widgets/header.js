/* The head of the page. Tabs follow the usual pattern: arrows move, one tab stop. */

export default {
  render({ model, el }) {
    const name = model.get("name");
    become(el, name ? "ex-header" : "ex-subheader");
    if (name) {
      model.send("shown"); // by now every widget of the page is there and can receive what it missed
      el.append(make("h1", {}, name));
      el.exLabs = model.get("labs");
      el.exOpenLab = (lab) => { // the link is on a panel that goes: its focus to the tab that comes
        const arrive = () => {
          model.off("change:selected", arrive);
          el.querySelector("[aria-selected=true]")?.focus();
        };
        model.on("change:selected", arrive);
        press(model, { lab });
      };
    }
    const whole = button("Glossary", "ex-link ex-glossary-open", () => openGlossary(el.closest(".ex-root")),
      { "aria-haspopup": "dialog" });
    const titles = model.get("tabs");
    if (titles.length < 2) {
      if (name) el.append(whole);
      return undefined;
    }

    const choose = (index) => {
      tabs[index].focus();
      afterChanges(() => { // the race is offered the design that the controls have when it is opened
        model.set("selected", index);
        model.save_changes();
      });
    };
    const tabs = titles.map((title, index) => button(title, "", () => choose(index), { role: "tab" }));
    const onkeydown = (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) choose((model.get("selected") + step + tabs.length) % tabs.length);
    };
    el.append(make("div", { class: "ex-tabs", role: "tablist", "aria-label": model.get("label"), onkeydown }, ...tabs));
    if (name) el.append(whole);
    return follow(model, "selected", () => tabs.forEach((tab, index) => {
      const chosen = index === model.get("selected");
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
    }));
  },
};
