/* Designs with a name and a hue: a chip with buttons for each, below the current design or a list to add designs
   from.

   The kernel decides whether to accept a new name, so the names are painted again at each answer (`answers`). */

const BUTTONS = {
  show: { label: "Show" },
  hide: { label: "Hide" },
  load: { label: "Load", rest: " into the controls", title: "Sets the controls to this design" },
  remove: { label: "Remove" },
};

/** The entry with the name of a chip. `send` receives a new name; Escape restores the old one. */
function nameEntry(send) {
  let savedName = "";
  let isEditing = false; // a name that is being edited is not painted over
  const finish = () => {
    if (isEditing) send(input.value);
    isEditing = false;
  };
  const input = make("input", {
    class: "ex-pin-name", type: "text", size: 8, autocomplete: "off", spellcheck: "false", title: "Click to rename",
    ...OWN_KEYS,
    oninput: () => { isEditing = true; },
    onchange: finish,
    onkeydown: (event) => {
      if (event.key === "Enter") finish(); // JupyterLab suppresses the `change` event of Enter
      if (event.key === "Escape") { isEditing = false; input.value = savedName; }
    },
  });
  const paint = (name, label, longest) => {
    savedName = name;
    if (!isEditing) input.value = name;
    input.maxLength = 4 * longest; // the kernel shortens a long name with a message, the browser without
    input.setAttribute("aria-label", label);
  };
  return { input, paint };
}

/** The chip of one design. */
function chip(model, number) {
  const isSelectable = model.get("choices").length > 0;
  const send = (verb, ...values) => model.act([verb, number, ...values]);
  const mark = swatch();
  const name = nameEntry((text) => send("name", text));
  const about = isSelectable ? button("", "ex-link ex-pin-about", () => send("select"))
    : make("span", { class: "ex-pin-about" });
  const buttons = model.get("verbs").map(() => (
    button("", "ex-link", ({ currentTarget }) => send(currentTarget.dataset.verb))));
  const root = make("li", { class: isSelectable ? "ex-pin ex-contender" : "ex-pin" }, mark.svg, name.input, about,
    make("span", { class: "ex-pin-buttons" }, ...buttons));

  function paint(entry) {
    mark.paint(entry);
    name.paint(entry.name, `Name of the ${model.get("noun")} ${entry.name}`, model.get("longest"));
    write(about, entry.about); // cut to one line by the style sheet; the tooltip has the whole text
    about.title = isSelectable ? `${entry.about}: shows this recipe in the controls below` : entry.about;
    if (isSelectable) {
      about.setAttribute("aria-pressed", String(entry.selected));
      about.setAttribute("aria-label", `Recipe of ${entry.name}: ${entry.about}`);
    }
    model.get("verbs").forEach((verb, index) => {
      const offeredVerb = verb === "hide" && !entry.visible ? "show" : verb;
      const { label, rest = "", title = "" } = BUTTONS[offeredVerb];
      Object.assign(buttons[index], { textContent: label, title });
      buttons[index].dataset.verb = offeredVerb;
      buttons[index].setAttribute("aria-label", `${label} ${entry.name}${rest}`);
    });
    root.classList.toggle("ex-selected", entry.selected);
    root.classList.toggle("ex-pin-hidden", !entry.visible);
  }
  return { root, paint };
}

/** Fills a list with chips. Returns the function that paints it.

    A chip is kept by its number and only repainted, so that the focus and a name that is being edited survive. When
    a chip with the focus disappears, the focus moves to `refuge`, or the keyboard would start from the top of the
    page. */
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

/** The meaning of a mark. Details after a semicolon, for experts, are in its tooltip and for screen readers. */
const markNodes = (text) => {
  const [short, ...details] = text.split(/(?=;)/);
  return make("span", { title: text }, short, make("span", { class: "ex-spoken" }, ...details));
};

/** The current design with the button that pins it, and the meaning of dots and lines. */
function currentDesign(model) {
  const mark = swatch();
  const name = make("b", { class: "ex-now-name" });
  const now = make("span", { class: "ex-pin-about" }, "now");
  const pin = button("Pin", "ex-button ex-pin-button", () => model.act(["pin"]), {
    "aria-label": "Pin the current design", title: "Keeps this design on every chart while the controls move on",
  });
  const current = make("span", { class: "ex-now" }, mark.svg, name, now, pin);
  const marks = make("span", { class: "ex-marks" });
  const paint = () => {
    const design = model.get("now");
    mark.paint(design);
    setText(name, design.name ?? "");
    now.hidden = !model.get("entries").length;
    const texts = model.get("marks");
    write(marks, texts.join("\n"), () => texts.map(markNodes));
  };
  return { nodes: [make("div", { class: "ex-pin-head" }, current, marks)], button: pin, paint };
}

/** A heading, and a list of designs with the button that adds one. It is above the chips, so that the button stays
    under the pointer when a chip is added. */
function designChooser(model) {
  const heading = make("h3", { class: "ex-side-heading" });
  let value, paintedChoices;
  const add = button("Add", "ex-button", () => model.act(["add", value]), {
    "aria-label": "Add the chosen design as a contender",
  });
  const chooser = make("div", { class: "ex-control ex-add", ...OWN_KEYS });
  const fill = (options) => {
    paintedChoices = options;
    const label = "Design to add";
    const choose = (design) => { value = design; list.paint(design); };
    const list = search({ label, options }, `ex-add-${model.number}`, choose);
    list.below[0].querySelector("input").setAttribute("aria-label", label);
    choose(options.some((option) => option.value === value) ? value : options[0].value);
    chooser.replaceChildren(...list.below, add);
  };
  const paint = () => {
    setText(heading, model.get("heading"));
    if (paintedChoices !== model.get("choices")) fill(model.get("choices")); // or an open list would close
  };
  return { nodes: [heading, chooser], button: add, paint };
}

export function roster_box(model, el) {
  const isSelectable = model.get("choices").length > 0;
  const head = (isSelectable ? designChooser : currentDesign)(model);
  const list = make("ul", { class: "ex-pin-list", "aria-label": `${model.get("noun")}s` });
  const status = make("p", { class: "ex-pin-said", role: "status" });
  const paintChips = chipList(model, list, head.button);
  become(el, isSelectable ? "ex-contenders" : "ex-pins", { role: "group" });
  el.append(...head.nodes, list, status);
  return follow(model, "entries choices now marks heading said answers", () => {
    el.setAttribute("aria-label", model.get("heading"));
    head.paint();
    setText(status, model.get("said"));
    paintChips();
  });
}
