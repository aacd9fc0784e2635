/* The legend of all charts: the current design, what dots and lines mean, and the pinned designs with their buttons.

   Chips are kept by their number and only repainted, so that the focus, and a name that is being written, survive a
   slider that moves meanwhile. A name that was sent is painted again with every answer (`turn`): the kernel decides.
   `make`, `button` and `swatch` are those of marks.js, which `marked` puts before this. */

/** One pinned design. */
function chip(model, number) {
  let pin = {};
  let writing = false;
  const send = (verb, ...more) => model.send([verb, number, ...more]);
  const mark = swatch();
  const name = make("input", {
    class: "ex-pin-name", type: "text", size: 8, autocomplete: "off", spellcheck: "false", title: "Click to rename", ...OWN_KEYS,
    oninput: () => { writing = true; },
    onchange: () => rename(),
    onkeydown: (event) => {
      if (event.key === "Enter") rename(); // in JupyterLab, Enter does not make a `change`
      if (event.key === "Escape") restore();
    },
  });
  const about = make("span", { class: "ex-pin-about" });
  const toggle = button("", "ex-link", () => send(pin.visible ? "hide" : "show"));
  const load = button("Load", "ex-link", () => send("load"));
  const remove = button("Remove", "ex-link", () => send("remove"));
  load.title = "Sets the controls to this design";
  const buttons = make("span", { class: "ex-pin-buttons" }, toggle, load, remove);
  const root = make("li", { class: "ex-pin", "data-pin": number }, mark.svg, name, about, buttons);

  function rename() {
    if (!writing) return;
    writing = false;
    send("name", name.value);
  }
  function restore() {
    writing = false;
    name.value = pin.name;
  }
  function paint(now) {
    pin = now;
    mark.paint(pin);
    if (!writing) name.value = pin.name;
    name.maxLength = 4 * model.get("longest"); // what is over the limit is cut in words, not in silence
    name.setAttribute("aria-label", `Name of the pinned design ${pin.name}`);
    about.textContent = about.title = pin.about; // one line; what does not fit is in the tooltip
    toggle.textContent = pin.visible ? "Hide" : "Show";
    toggle.setAttribute("aria-label", `${toggle.textContent} ${pin.name}`);
    load.setAttribute("aria-label", `Load ${pin.name} into the controls`);
    remove.setAttribute("aria-label", `Remove ${pin.name}`);
    root.classList.toggle("ex-pin-hidden", !pin.visible);
  }
  return { root, paint, name };
}

export default {
  render({ model, el }) {
    el.classList.add("ex-pins");
    el.setAttribute("role", "group");
    el.setAttribute("aria-label", "Designs on the charts");
    const mark = swatch();
    const name = make("b", { class: "ex-now-name" });
    const about = make("span", { class: "ex-pin-about" });
    const pinning = button("Pin", "ex-button ex-pin-button", () => model.send(["pin"]));
    pinning.setAttribute("aria-label", "Pin the current design");
    pinning.title = "Keeps this design on every chart while the controls move on";
    const now = make("span", { class: "ex-now" }, mark.svg, name, about, pinning);
    const marks = make("span", { class: "ex-marks" });
    const list = make("ul", { class: "ex-pin-list", "aria-label": "Pinned designs" });
    const said = make("p", { class: "ex-pin-said", role: "status" });
    el.append(make("div", { class: "ex-pin-head" }, now, marks), list, said);

    const chips = new Map();
    const paint = () => {
      const current = model.get("now");
      mark.paint(current);
      name.textContent = current.name ?? "";
      about.textContent = `${model.get("pins").length ? "now · " : ""}${current.about ?? ""}`;
      marks.replaceChildren(...model.get("marks").map((words) => make("span", {}, words)));
      said.textContent = model.get("said");
      const pins = model.get("pins");
      for (const [number, old] of chips) {
        if (pins.some((pin) => pin.number === number)) continue;
        if (old.root.contains(document.activeElement)) pinning.focus(); // or the keyboard would start from the top
        old.root.remove();
        chips.delete(number);
      }
      for (const pin of pins) {
        if (!chips.has(pin.number)) {
          chips.set(pin.number, chip(model, pin.number));
          list.append(chips.get(pin.number).root);
        }
        chips.get(pin.number).paint(pin);
      }
      list.hidden = pins.length === 0;
    };
    const events = "change:now change:pins change:marks change:said change:turn";
    model.on(events, paint);
    paint();
    return () => model.off(events, paint);
  },
};
