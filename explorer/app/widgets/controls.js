/* Draws a ControlBox with native controls, so that keyboard, touch and screen readers work as everywhere.

   The state is in the model: at every change this file writes `values` as a whole (the widget protocol keeps one
   message in flight and merges the rest), and `paint` shows every state that the kernel answers. Nothing is
   validated here. An entry that is not a number is sent as text, and the kernel says in words why it refuses it. */

let controlCount = 0; // for ids and names of radio groups, which must be unique in the page
const ENTRY_WIDTH = 6; // characters; an entry grows with longer numbers
const WIDEST_ENTRY = 14;

/** The number in an entry, or its text if that is no number: "12,5" is 12.5, but "1,024" has two meanings. */
const parseEntry = (text) => {
  const trimmed = text.trim().replace("−", "-");
  const isAmbiguous = /^[-+]?[1-9]\d{0,2},\d{3}$/.test(trimmed);
  const number = isAmbiguous ? trimmed : trimmed.replace(/^([-+]?\d*),(\d+)$/, "$1.$2");
  return number !== "" && Number.isFinite(Number(number)) ? Number(number) : trimmed;
};

/** A number with all its digits. If it is too long for an entry, the shorter of decimal and exponential notation. */
function formatNumber(value) {
  const decimal = String(value);
  if (typeof value !== "number" || decimal.length <= ENTRY_WIDTH) return decimal;
  const exponential = value.toExponential().replace("e+", "e");
  return exponential.length < decimal.length ? exponential : decimal;
}

/** The index of the step nearest to a value: by ratio where the steps, which rise, are positive and far apart. */
function nearestStep(steps, value) {
  const axis = steps[0] > 0 && steps.at(-1) / steps[0] > 20 ? Math.log : (x) => x;
  const gaps = steps.map((step) => Math.abs(axis(step) - axis(value)));
  return gaps.indexOf(Math.min(...gaps));
}

const joined = (words, separator) => words.filter((word) => word || word === 0).join(separator);
const spokenLabel = (field) => joined([field.label, field.symbol, field.unit], ", ");
const describeOption = (option) => joined([option.formula, option.source], " · ");

/* A look makes nodes `before` and `after` the title or `below` it, and `paint(value, exclusionOf)`, which shows
   a value. `exclusionOf(option)` is why the kernel would refuse an option, if it would. Such an option is set apart
   and says why, but can be chosen, because the refusal offers a fix. */

/** Marks an option's `input` and its visible `node` as excluded, or as allowed without an `exclusion`. */
function setExclusion(input, node, exclusion, usualTitle = "") {
  const title = exclusion?.reason ?? usualTitle;
  input.exReason = exclusion?.reason;
  setAttribute(input, "aria-disabled", exclusion ? "true" : null);
  setAttribute(node, "title", title || null); // an empty title would hide the control's own
  node.classList.toggle("ex-excluded", Boolean(exclusion));
}

function entry(field, id, send) {
  const isText = field.look === "text";
  let isEditing = false; // a value that is being typed is not painted over
  const finish = () => { isEditing = false; send(isText ? input.value : parseEntry(input.value)); };
  const input = make("input", {
    class: "ex-entry", id, type: "text", inputmode: isText ? "text" : "decimal", autocomplete: "off", spellcheck: "false",
    "aria-label": spokenLabel(field), onchange: finish,
    oninput: () => { isEditing = true; },
    onblur: () => { isEditing = false; },
    onkeydown: (event) => event.key === "Enter" && finish(), // JupyterLab suppresses the `change` event of Enter
  });
  const paint = (value) => {
    if (isEditing) return;
    const text = formatNumber(value);
    if (input.value !== text) input.value = text;
    const letters = Math.min(text.length, WIDEST_ENTRY); // a value that was solved for has many digits
    input.style.minWidth = letters > ENTRY_WIDTH ? `calc(${letters}ch + 20px)` : "";
  };
  return { after: [input], paint };
}

function slider(field, id, send, release) {
  const { after, paint: paintEntry } = entry(field, `${id}-entry`, send);
  const range = make("input", {
    id, type: "range", min: 0, max: field.steps.length - 1, step: 1, "aria-label": spokenLabel(field),
    oninput: () => send(field.steps[Number(range.value)], true),
    onkeydown: ({ key, ctrlKey, metaKey }) => { // a number that is typed goes into the entry
      if (/^[\d.]$/.test(key) && !ctrlKey && !metaKey) after[0].select();
    },
  });
  // The browser leaves out `change` where `paint` has written the value meanwhile.
  listen(range, "change pointerup pointercancel keyup blur", release);
  const paint = (value) => {
    paintEntry(value);
    if (typeof value === "number" && field.steps[Number(range.value)] !== value) {
      range.value = nearestStep(field.steps, value);
    }
    setAttribute(range, "aria-valuetext", joined([value, field.unit], " "));
  };
  return { below: [make("div", { class: "ex-row" }, range, ...after)], paint };
}

function toggle(field, id, send) {
  const box = make("input", { id, type: "checkbox", onchange: () => send(box.checked) });
  const paint = (value, exclusionOf) => {
    box.checked = value === true;
    setExclusion(box, box, exclusionOf(!box.checked));
  };
  return { before: [box], paint };
}

function segments(field, id, send) {
  const radios = field.options.map(({ value }) => make("input", {
    type: "radio", name: id, id: `${id}-${value}`, value, onchange: () => send(value),
  }));
  const labels = field.options.map((option) => make(
    "label", { class: "ex-segment", for: `${id}-${option.value}`, title: describeOption(option) }, option.label));
  const group = make("div", { class: "ex-segments", role: "radiogroup", "aria-labelledby": `${id}-title` },
    ...radios.flatMap((radio, index) => [radio, labels[index]]));
  const paint = (value, exclusionOf) => radios.forEach((radio, index) => {
    radio.checked = radio.value === value;
    const exclusion = radio.checked ? undefined : exclusionOf(radio.value);
    setExclusion(radio, labels[index], exclusion, describeOption(field.options[index]));
  });
  return { below: [group], paint };
}

/** A native list. Excluded options stand last, in groups that say what must be changed first. */
function list(field, id, send) {
  const options = field.options.map(({ value, label }) => make("option", { value }, label));
  const select = make("select", { id, onchange: () => send(select.value) }, ...options);
  let paintedWays = "";
  const arrange = (exclusions) => {
    const ways = exclusions.map((exclusion) => exclusion?.way ?? "");
    if (paintedWays === ways.join("\n")) return;
    paintedWays = ways.join("\n");
    const optionsOf = (way) => options.filter((_, index) => ways[index] === way);
    const groups = [...new Set(ways)].filter(Boolean).map((way) => (
      make("optgroup", { label: way[0].toUpperCase() + way.slice(1) }, ...optionsOf(way))));
    select.replaceChildren(...optionsOf(""), ...groups);
  };
  const paint = (value, exclusionOf) => {
    const exclusions = options.map((option) => exclusionOf(option.value));
    options.forEach((option, index) => { option.title = exclusions[index]?.reason ?? ""; });
    arrange(exclusions);
    select.value = value;
  };
  return { below: [select], paint };
}

/** An entry that has the width of its control. */
const text = (field, id, send) => {
  const { after, paint } = entry(field, id, send);
  return { below: after, paint };
};

const LOOKS = { slider, entry, switch: toggle, text, segments, list, search };

/** A value in words: the label of an option, "on" or "off", or the number. */
function valueText(field, value) {
  const option = field.options.find((item) => item.value === value);
  if (option) return option.label;
  return typeof value === "boolean" ? (value ? "on" : "off") : String(value);
}

/** Label, symbol and unit. The symbol is a button, so it stands beside the label: a label cannot hold a button. */
function title(field, id) {
  const symbol = !field.symbol ? helpButton(field.term)
    : field.term < 0 ? typeset(field.symbol) : [termButton(field.symbol, field.term)];
  const unit = symbol.length && field.unit ? `, ${field.unit}` : field.unit;
  const label = field.look === "segments" ? make("span", { class: "ex-label" }, field.label)
    : make("label", { class: "ex-label", for: id }, field.label);
  return make("span", { class: "ex-title", id: `${id}-title` }, label,
    make("span", { class: "ex-symbol" }, ...symbol, ...typeset(unit)));
}

/** The usual values in short, in the room that the title leaves. */
const usualNodes = ({ usual }) => (usual ? [
  make("span", { class: "ex-usual", "aria-hidden": "true" }, make("span", {}, `usual ${usual.split(":")[0]}`)),
] : []);

/** The button that opens a map over the range of a slider, in a list; none beside other controls. */
const mapButtons = (model, { name, label }) => (model.get("maps").includes(name) ? [
  button("map", "ex-link ex-to-map", () => model.act(["map", name]), {
    "aria-label": `Map over ${label}`, title: "Opens the tab Map: a statistic of this design over this slider's range",
  }),
] : []);

/** The control of a field: its title, reset button, input, offers and notes. `paint` shows the model's state. */
function control(model, field) {
  const { name, initial } = field;
  const id = `ex-${(controlCount += 1)}`;
  let paintedState = null; // as text
  let isUsed = false; // whether it shows all that it offers: its value is another one, or was
  const send = (value, isHeld = false) => {
    // The model would not send what it has already, so that no answer would come.
    if (model.get("values")[name] !== value || model.get("held") !== isHeld) {
      model.change({ values: { ...model.get("values"), [name]: value }, held: isHeld });
    }
    paintedState = null; // an entry of the same value may be written differently: 64.0 for 64
    paint();
  };
  const release = () => model.get("held") && model.change({ held: false });
  const look = LOOKS[field.look](field, id, send, release);
  const nodes = controlNodes(model, field, id, look, () => send(initial));

  function paint() {
    const value = model.get("values")[name];
    const traits = ["excluded", "notes", "changes", "offers"].map((trait) => model.get(trait)[name]);
    const [isDisabled, isRefused, isAbsent] = ["disabled", "refused", "absent"]
      .map((trait) => model.get(trait).includes(name));
    // Most controls stay as they are. A browser that fills in forms examines each control that is written.
    const state = JSON.stringify([value, isDisabled, isRefused, isAbsent, ...traits]);
    if (state === paintedState) return;
    paintedState = state;
    const excluded = traits[0] ?? [];
    isUsed ||= value !== initial;
    nodes.root.classList.toggle("ex-used", isUsed);
    look.paint(value, (option) => excluded.find((item) => item.value === option));
    paintWords(model, field, nodes, value, isDisabled);
    nodes.note.hidden = !isUsed && !traits[1];
    makeTabStop(nodes.root);
    if (field.look === "slider") nodes.root.querySelector(".ex-entry").tabIndex = isUsed ? 0 : -1;
    nodes.root.classList.toggle("ex-disabled", isDisabled);
    nodes.root.classList.toggle("ex-refused", isRefused);
    nodes.reset.classList.toggle("ex-hidden", value === initial);
    nodes.root.hidden = isAbsent;
    nodes.toMap.forEach((node) => { node.disabled = isDisabled; });
    nodes.inputs.forEach((input) => {
      input.disabled = isDisabled;
      setAttribute(input, "aria-invalid", String(isRefused));
      describeInput(input, nodes.note.id, nodes.description);
    });
  }
  return { root: nodes.root, paint };
}

/** Makes the nodes of a control around those of its look. */
function controlNodes(model, field, id, { before = [], after = [], below = [] }, resetValue) {
  const initial = valueText(field, field.initial);
  const reset = button("reset", "ex-reset", resetValue, {
    "aria-label": `Reset ${field.label} to ${initial}`, title: `Back to ${initial}`,
  });
  const toMap = mapButtons(model, field);
  const note = make("p", { class: "ex-hint", id: `${id}-note` });
  const ways = make("p", { class: "ex-hint ex-ways" });
  const offers = make("div", { class: "ex-offers" });
  const changes = make("p", { class: "ex-changes", role: "status" });
  const description = joined([field.description, field.usual && `Usual: ${field.usual}.`], " ");
  const root = make("div", {
    class: "ex-control", "data-field": field.name, "data-look": field.look, title: description,
  }, make("div", { class: "ex-head" },
    ...before, title(field, id), ...usualNodes(field), ...toMap, reset, ...after),
  ...below, offers, note, ways, changes);
  const inputs = root.querySelectorAll("input, select");
  return { root, reset, toMap, note, ways, offers, changes, inputs, description };
}

/** Paints the lines below a control: how to reach excluded options, the note, the last change, and offers. */
function paintWords(model, field, { ways, note, changes, offers }, value, isDisabled) {
  const get = (trait) => model.get(trait)[field.name] ?? [];
  const others = get("excluded").filter((item) => item.value !== value);
  write(ways, isDisabled || field.look === "list" ? "" : waysText(field, others));
  const option = field.options.find((item) => item.value === value);
  write(note, model.get("notes")[field.name] ?? (option ? describeOption(option) : ""), cited);
  paintChanges(changes, get("changes"));
  paintOffers(model, field.name, offers, isDisabled);
}

/** The excluded options in words, grouped by what must be changed first. */
function waysText(field, excluded) {
  const ways = new Map();
  excluded.forEach(({ value, way }) => ways.set(way, [...ways.get(way) ?? [], valueText(field, value)]));
  return [...ways].map(([way, options]) => `${options.join(", ")}: ${way}`).join("; ");
}

/** Sets what screen readers add to an input: the reason of an exclusion, or else the note and the description. */
function describeInput(input, noteId, description) {
  setAttribute(input, "aria-describedby", input.exReason ? null : noteId);
  setAttribute(input, "aria-description", input.exReason ?? description);
}

/** Shows what a choice changed of another field: its label, the old value and the new value. */
function paintChanges(node, changes) {
  const words = ([label, before, after]) => make("span", {}, ...typeset(`${label} `),
    make("span", { class: "ex-step" }, `${before} → `, make("b", {}, after)));
  node.replaceChildren(...(changes.length ? ["Changed: "] : []), ...changes.map(words));
}

/** Paints the buttons below a control. Buttons that are there already stay, and with them the focus. */
function paintOffers(model, name, box, isDisabled) {
  const offers = model.get("offers")[name] ?? [];
  [...box.children].slice(offers.length).forEach((node) => node.remove());
  const keptCount = box.children.length;
  box.append(...offers.slice(keptCount).map(({ label, title: words }, index) => (
    button(label, "ex-offer", () => model.act([name, keptCount + index]), { title: words }))));
  [...box.children].forEach((node) => { node.disabled = isDisabled; });
}

/** The button that shows and hides the folded fields of a section. A field with the focus stays. */
function moreButton(model, sectionTitle, nodes) {
  let isOpen = false;
  const more = button("", "ex-link ex-more", () => {
    isOpen = !isOpen;
    more.setAttribute("aria-expanded", String(isOpen));
    paint();
  }, { "aria-expanded": "false" });
  function paint() {
    const folded = nodes.filter((node) => model.get("folded").includes(node.dataset.field));
    nodes.forEach((node) => node.classList.toggle(
      "ex-folded", !isOpen && folded.includes(node) && !node.contains(document.activeElement)));
    more.hidden = folded.length === 0;
    setText(more, isOpen ? `Fewer in ${sectionTitle}` : `More in ${sectionTitle} (${folded.length})`);
  }
  return { more, paint };
}

/** The words by which a control is found: its own, and those of its options, their formulas and papers. */
const wordsOf = (field) => normalized(joined([field.label, field.symbol, field.name.replaceAll("_", " "),
  field.description, ...field.options.flatMap(Object.values)], " "))
  .split(/\s+/);

/** An entry that shows, of the folded sections, only the controls with words that begin like those in it. */
function finder(el, folds) {
  const status = make("p", { class: "ex-hint", role: "status" });
  const find = () => {
    const parts = normalized(input.value).split(/\s+/).filter(Boolean), isFinding = parts.length > 0, found = [];
    if (isFinding && !el.classList.contains("ex-searching")) folds.forEach((fold) => { fold.wasOpen = fold.node.open; });
    el.classList.toggle("ex-searching", isFinding);
    for (const { node, controls, wasOpen } of folds) {
      const matches = controls.filter(({ words }) => parts.every((part) => words.some((word) => word.startsWith(part))));
      controls.forEach((control) => control.root.classList.toggle("ex-missed", !matches.includes(control)));
      node.classList.toggle("ex-missed", !matches.length);
      node.open = isFinding ? matches.length > 0 : wasOpen ?? node.open;
      found.push(...matches);
    }
    setText(status, isFinding ? (found.length ? `${found.length} found` : "No control has these words.") : "");
    if (isFinding) bringIntoView(found[0]?.root);
  };
  const input = make("input", { class: "ex-search", type: "search", "aria-label": "Find a control", autocomplete: "off",
    spellcheck: "false", placeholder: "Find: cap, rotary, seeds", oninput: find });
  return make("div", { class: "ex-find" }, input, status);
}

/** Makes all sections; a section with a title can be folded. Returns the function that paints the fields. */
function makeSections(model, el) {
  const opened = [...el.querySelectorAll("details[open]")].map((node) => node.dataset.section);
  const paints = [], folds = [];
  const sections = model.get("sections").map((section) => {
    const controls = section.fields.map((field) => ({ ...control(model, field), words: wordsOf(field) }));
    const nodes = controls.map(({ root }) => root);
    paints.push(...controls.map(({ paint }) => paint));
    if (!section.title) return make("div", { class: "ex-section" }, ...nodes);
    const { more, paint } = moreButton(model, section.title, nodes);
    paints.push(paint);
    const fold = make("details", { class: "ex-section", "data-section": section.title },
      make("summary", {}, section.title), ...nodes, more);
    fold.open = opened.includes(section.title);
    folds.push({ node: fold, controls });
    return fold;
  });
  if (folds.length) sections.splice(sections.findIndex((node) => node === folds[0].node), 0, finder(el, folds));
  const summary = make("p", { class: "ex-summary" });
  el.replaceChildren(...sections, summary);
  el.querySelectorAll("input, select, summary").forEach((node) => { node.dataset.lmSuppressShortcuts = "true"; });
  return () => {
    paints.forEach((paint) => paint());
    setText(summary, model.get("summary"));
  };
}

export function controls(model, el) {
  become(el, "ex-controls", { role: "group", "aria-label": model.get("label") });
  let paint = () => {};
  return callAll([
    follow(model, "sections maps", () => {
      paint = makeSections(model, el);
      paint();
    }),
    follow(model, "values notes excluded offers changes folded disabled refused summary absent", () => paint()),
  ]);
}
