/* Designs with a name and a hue: chips with buttons, and above them the current design or a list to search and add from.

   A name that was sent is painted again with every answer (`answers`): the kernel decides. */

const BUTTONS = {
  show: { label: "Show" },
  hide: { label: "Hide" },
  load: { label: "Load", rest: " into the controls", title: "Sets the controls to this design" },
  remove: { label: "Remove" },
};

/** The name of a chip, which can be edited: `send` receives a new one, and Escape cancels. */
function nameEntry(send) {
  let saved = "";
  let writing = false; // a name that is being written is not painted over
  const done = () => {
    if (writing) send(input.value);
    writing = false;
  };
  const input = make("input", {
    class: "ex-pin-name", type: "text", size: 8, autocomplete: "off", spellcheck: "false", title: "Click to rename",
    ...OWN_KEYS,
    oninput: () => { writing = true; },
    onchange: done,
    onkeydown: (event) => {
      if (event.key === "Enter") done(); // in JupyterLab, Enter does not make a `change`
      if (event.key === "Escape") { writing = false; input.value = saved; }
    },
  });
  const paint = (name, label, longest) => {
    saved = name;
    if (!writing) input.value = name;
    input.maxLength = 4 * longest; // what is over the limit is cut in words, not in silence
    input.setAttribute("aria-label", label);
  };
  return { input, paint };
}

/** One design. */
function chip(model, number) {
  const selects = model.get("choices").length > 0;
  const send = (verb, ...more) => press(model, [verb, number, ...more]);
  const mark = swatch();
  const name = nameEntry((text) => send("name", text));
  const about = selects ? button("", "ex-link ex-pin-about", () => send("select")) : make("span", { class: "ex-pin-about" });
  const buttons = model.get("verbs").map(() => button("", "ex-link", ({ currentTarget }) => send(currentTarget.dataset.verb)));
  const root = make("li", { class: selects ? "ex-pin ex-contender" : "ex-pin" }, mark.svg, name.input, about,
    make("span", { class: "ex-pin-buttons" }, ...buttons));

  function paint(entry) {
    mark.paint(entry);
    name.paint(entry.name, `Name of the ${model.get("noun")} ${entry.name}`, model.get("longest"));
    write(about, entry.about); // one line; what does not fit is in the tooltip
    about.title = selects ? `${entry.about}: shows this recipe in the controls below` : entry.about;
    if (selects) {
      about.setAttribute("aria-pressed", String(entry.selected));
      about.setAttribute("aria-label", `Recipe of ${entry.name}: ${entry.about}`);
    }
    model.get("verbs").forEach((verb, index) => {
      const shown = verb === "hide" && !entry.visible ? "show" : verb;
      const { label, rest = "", title = "" } = BUTTONS[shown];
      Object.assign(buttons[index], { textContent: label, title });
      buttons[index].dataset.verb = shown;
      buttons[index].setAttribute("aria-label", `${label} ${entry.name}${rest}`);
    });
    root.classList.toggle("ex-selected", entry.selected);
    root.classList.toggle("ex-pin-hidden", !entry.visible);
  }
  return { root, paint };
}

/** Fills a list with chips. They are kept by their number and only repainted, so that the focus, and a name that is being
    written, survive; the focus of one that goes moves to `refuge`, or the keyboard would start from the top. */
function chipList(model, list, refuge) {
  const chips = new Map();
  return () => {
    const entries = model.get("entries");
    for (const [number, { root }] of chips) {
      if (entries.some((entry) => entry.number === number)) continue;
      if (root.contains(document.activeElement)) refuge.focus();
      root.remove();
      chips.delete(number);
    }
    for (const entry of entries) {
      if (!chips.has(entry.number)) {
        chips.set(entry.number, chip(model, entry.number));
        list.append(chips.get(entry.number).root);
      }
      chips.get(entry.number).paint(entry);
    }
    list.hidden = entries.length === 0;
  };
}

/** The current design, the button that pins it, and the meaning of dots and lines. */
function pinning(model) {
  const mark = swatch();
  const name = make("b", { class: "ex-now-name" });
  const about = make("span", { class: "ex-pin-about" });
  const pin = button("Pin", "ex-button ex-pin-button", () => press(model, ["pin"]), {
    "aria-label": "Pin the current design", title: "Keeps this design on every chart while the controls move on",
  });
  const now = make("span", { class: "ex-now" }, mark.svg, name, about, pin);
  const marks = make("span", { class: "ex-marks" });
  const paint = () => {
    const current = model.get("now");
    mark.paint(current);
    put(name, current.name ?? "");
    write(about, `${model.get("entries").length ? "now · " : ""}${current.about ?? ""}`);
    const shown = model.get("marks");
    write(marks, shown.join("\n"), () => shown.map((words) => make("span", {}, words)));
  };
  return { nodes: [make("div", { class: "ex-pin-head" }, now, marks)], press: pin, paint };
}

/** A heading, and a list of designs with the button that adds one: above the chips, so that it stays under the pointer. */
function adding(model) {
  const heading = make("h3", { class: "ex-side-heading" });
  let value;
  let filled;
  const add = button("Add", "ex-button", () => press(model, ["add", value]), {
    "aria-label": "Add the chosen design as a contender",
  });
  const chooser = make("div", { class: "ex-control ex-add", ...OWN_KEYS });
  const fill = (options) => {
    const label = "Design to add";
    const choose = (chosen) => { value = chosen; list.paint(chosen); };
    const list = search({ label, options }, `ex-add-${model.model_id ?? ""}`, choose);
    list.below[0].querySelector("input").setAttribute("aria-label", label);
    choose(options.some((option) => option.value === value) ? value : options[0].value);
    chooser.replaceChildren(...list.below, add);
  };
  const paint = () => {
    put(heading, model.get("heading"));
    if (filled !== model.get("choices")) fill(filled = model.get("choices")); // a list that is open must not close
  };
  return { nodes: [heading, chooser], press: add, paint };
}

export default {
  render({ model, el }) {
    const selects = model.get("choices").length > 0;
    const head = (selects ? adding : pinning)(model);
    const list = make("ul", { class: "ex-pin-list", "aria-label": `${model.get("noun")}s` });
    const said = make("p", { class: "ex-pin-said", role: "status" });
    const show = chipList(model, list, head.press);
    become(el, selects ? "ex-contenders" : "ex-pins", { role: "group" });
    el.append(...head.nodes, list, said);
    return follow(model, "entries choices now marks heading said answers", () => {
      el.setAttribute("aria-label", model.get("heading"));
      head.paint();
      put(said, model.get("said"));
      show();
    });
  },
};
