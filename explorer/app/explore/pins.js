/* The legend of all charts: the current design, what dots and lines mean, and the pinned designs with their buttons.

   A name that was sent is painted again with every answer (`turn`): the kernel decides. What is not defined here is in
   moves.js or marks.js, which `source` puts before this. */

/** One pinned design. */
function chip(model, number) {
  let pin = {};
  const send = (verb, ...more) => press(model, [verb, number, ...more]);
  const mark = swatch();
  const name = nameEntry((text) => send("name", text));
  const about = make("span", { class: "ex-pin-about" });
  const toggle = button("", "ex-link", () => send(pin.visible ? "hide" : "show"));
  const load = button("Load", "ex-link", () => send("load"));
  const remove = button("Remove", "ex-link", () => send("remove"));
  load.title = "Sets the controls to this design";
  const buttons = make("span", { class: "ex-pin-buttons" }, toggle, load, remove);
  const root = make("li", { class: "ex-pin", "data-pin": number }, mark.svg, name.input, about, buttons);

  function paint(now) {
    pin = now;
    mark.paint(pin);
    name.paint(pin.name, `Name of the pinned design ${pin.name}`, model.get("longest"));
    write(about, pin.about); // one line; what does not fit is in the tooltip
    about.title = pin.about;
    toggle.textContent = pin.visible ? "Hide" : "Show";
    toggle.setAttribute("aria-label", `${toggle.textContent} ${pin.name}`);
    load.setAttribute("aria-label", `Load ${pin.name} into the controls`);
    remove.setAttribute("aria-label", `Remove ${pin.name}`);
    root.classList.toggle("ex-pin-hidden", !pin.visible);
  }
  return { root, paint };
}

export default {
  render({ model, el }) {
    el.classList.add("ex-pins");
    el.setAttribute("role", "group");
    el.setAttribute("aria-label", "Designs on the charts");
    const mark = swatch();
    const name = make("b", { class: "ex-now-name" });
    const about = make("span", { class: "ex-pin-about" });
    const pinning = button("Pin", "ex-button ex-pin-button", () => press(model, ["pin"]));
    pinning.setAttribute("aria-label", "Pin the current design");
    pinning.title = "Keeps this design on every chart while the controls move on";
    const now = make("span", { class: "ex-now" }, mark.svg, name, about, pinning);
    const marks = make("span", { class: "ex-marks" });
    const list = make("ul", { class: "ex-pin-list", "aria-label": "Pinned designs" });
    const said = make("p", { class: "ex-pin-said", role: "status" });
    el.append(make("div", { class: "ex-pin-head" }, now, marks), list, said);

    const show = chipList(list, (number) => chip(model, number), pinning);
    const paint = () => {
      const current = model.get("now");
      mark.paint(current);
      name.textContent = current.name ?? "";
      write(about, `${model.get("pins").length ? "now · " : ""}${current.about ?? ""}`);
      marks.replaceChildren(...model.get("marks").map((words) => make("span", {}, words)));
      said.textContent = model.get("said");
      show(model.get("pins"));
      list.hidden = model.get("pins").length === 0;
    };
    const events = "change:now change:pins change:marks change:said change:turn";
    model.on(events, paint);
    paint();
    return () => model.off(events, paint);
  },
};
