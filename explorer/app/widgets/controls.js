/* Draws a ControlBox with native controls, so that keyboard, touch and screen readers work as everywhere.

   State lives in the model: `values` is written here as a whole at every change (the widget protocol keeps one message
   in flight and merges the rest), and whatever comes back is painted by `paint`. Nothing is checked here; an entry
   that is not a number travels as the text it is, and the kernel says in words why it was refused. */

let count = 0; // of controls: ids, and the names of radio groups, must be unique in the page
const FITS = 6; // characters in an entry, which grows with longer numbers
const WIDEST_ENTRY = 14;

/** What is in an entry: a number, or the text it is. 12,5 is 12.5; 1,024 could be either, and is left to be refused. */
const read = (text) => {
  const trimmed = text.trim().replace("−", "-");
  const thousands = /^[-+]?[1-9]\d{0,2},\d{3}$/.test(trimmed);
  const plain = thousands ? trimmed : trimmed.replace(/^([-+]?\d*),(\d+)$/, "$1.$2");
  return plain !== "" && Number.isFinite(Number(plain)) ? Number(plain) : trimmed;
};

/** A number to its last digit: 0.5, 64, and 1e-5 where that is shorter than an entry is wide. */
function written(value) {
  const plain = String(value);
  if (typeof value !== "number" || plain.length <= FITS) return plain;
  const short = value.toExponential().replace("e+", "e");
  return short.length < plain.length ? short : plain;
}

/** Index of the step nearest to a value; steps rise, so nearness by ratio where all are positive. */
function nearest(steps, value) {
  const axis = steps[0] > 0 && steps.at(-1) / steps[0] > 20 ? Math.log : (x) => x;
  const gaps = steps.map((step) => Math.abs(axis(step) - axis(value)));
  return gaps.indexOf(Math.min(...gaps));
}

const joined = (words, between) => words.filter((word) => word || word === 0).join(between);
const spoken = (field) => joined([field.label, field.symbol, field.unit], ", ");
const about = (option) => joined([option.formula, option.source], " · ");

/* Each look makes the nodes before and after the title, or below it, and `paint(value, excluded)`, which shows a value
   that came from anywhere. An option for which `excluded(option)` finds something would be refused: it is set apart
   and says why, but can be chosen, for the refusal offers the change that mends it. */

function exclude(input, node, item, words = "") {
  const title = item?.reason ?? words;
  input.exReason = item?.reason;
  if (item) input.setAttribute("aria-disabled", "true");
  else input.removeAttribute("aria-disabled");
  if (title) node.title = title;
  else node.removeAttribute("title"); // an empty one would hide the control's own
  node.classList.toggle("ex-excluded", Boolean(item));
}

function entry(field, id, send) {
  let writing = false; // a number that is being typed is not painted over
  const done = () => { writing = false; send(read(input.value)); };
  const input = make("input", {
    class: "ex-entry", id, type: "text", inputmode: "decimal", autocomplete: "off", spellcheck: "false",
    "aria-label": spoken(field), onchange: done,
    oninput: () => { writing = true; },
    onblur: () => { writing = false; },
    onkeydown: (event) => event.key === "Enter" && done(), // in JupyterLab, Enter does not make a `change`
  });
  const paint = (value) => { // to the last digit: what stands there is what is measured
    if (writing) return;
    if (input.value !== written(value)) input.value = written(value);
    const letters = Math.min(input.value.length, WIDEST_ENTRY); // a solved value has more than fit
    input.style.minWidth = letters > FITS ? `calc(${letters}ch + 20px)` : "";
  };
  return { after: [input], paint };
}

function slider(field, id, send, letGo) {
  const { after, paint: paintEntry } = entry(field, `${id}-entry`, send);
  const range = make("input", {
    id, type: "range", min: 0, max: field.steps.length - 1, step: 1, "aria-label": spoken(field),
    oninput: () => send(field.steps[Number(range.value)], true),
  });
  // There is no `change` when a script has written the value since: what the kernel answers is painted.
  const ends = ["change", "pointerup", "pointercancel", "keyup", "blur"];
  ends.forEach((name) => range.addEventListener(name, letGo));
  const paint = (value) => {
    paintEntry(value);
    if (typeof value === "number" && field.steps[Number(range.value)] !== value) {
      range.value = nearest(field.steps, value);
    }
    mark(range, "aria-valuetext", joined([value, field.unit], " "));
  };
  return { below: [make("div", { class: "ex-row" }, range, ...after)], paint };
}

function toggle(field, id, send) {
  const box = make("input", { id, type: "checkbox", onchange: () => send(box.checked) });
  const paint = (value, excluded) => {
    box.checked = value === true;
    exclude(box, box, excluded(!box.checked));
  };
  return { before: [box], paint };
}

function segments(field, id, send) {
  const radios = field.options.map(({ value }) => make("input", {
    type: "radio", name: id, id: `${id}-${value}`, value, onchange: () => send(value),
  }));
  const labels = field.options.map((option) => make(
    "label", { class: "ex-segment", for: `${id}-${option.value}`, title: about(option) }, option.label));
  const group = make("div", { class: "ex-segments", role: "radiogroup", "aria-labelledby": `${id}-title` },
    ...radios.flatMap((radio, index) => [radio, labels[index]]));
  const paint = (value, excluded) => radios.forEach((radio, index) => {
    radio.checked = radio.value === value;
    exclude(radio, labels[index], radio.checked ? undefined : excluded(radio.value), about(field.options[index]));
  });
  return { below: [group], paint };
}

/** A native list, in which options that would be refused stand last, in groups that say what to change first. */
function list(field, id, send) {
  const options = field.options.map(({ value, label }) => make("option", { value }, label));
  const select = make("select", { id, onchange: () => send(select.value) }, ...options);
  let arranged = "";
  const arrange = (items) => {
    const ways = items.map((item) => item?.way ?? "");
    if (arranged === ways.join("\n")) return;
    arranged = ways.join("\n");
    const of = (way) => options.filter((_, index) => ways[index] === way);
    const groups = [...new Set(ways)].filter(Boolean).map((way) => (
      make("optgroup", { label: way[0].toUpperCase() + way.slice(1) }, ...of(way))));
    select.replaceChildren(...of(""), ...groups);
  };
  const paint = (value, excluded) => {
    const items = options.map((option) => excluded(option.value));
    options.forEach((option, index) => { option.title = items[index]?.reason ?? ""; });
    arrange(items);
    select.value = value;
  };
  return { below: [select], paint };
}

const LOOKS = { slider, entry, switch: toggle, segments, list, search };

function worded(field, value) {
  const option = field.options.find((item) => item.value === value);
  if (option) return option.label;
  return typeof value === "boolean" ? (value ? "on" : "off") : String(value);
}

/** Label, symbol and unit. The symbol opens the glossary, so it stands beside the label, not within. */
function title(field, id) {
  const symbol = !field.symbol ? asked(field.term)
    : field.term < 0 ? typeset(field.symbol) : [termButton(field.symbol, field.term)];
  const rest = symbol.length && field.unit ? `, ${field.unit}` : field.unit;
  const label = field.look === "segments" ? make("span", { class: "ex-label" }, field.label)
    : make("label", { class: "ex-label", for: id }, field.label);
  return make("span", { class: "ex-title", id: `${id}-title` }, label, make("span", { class: "ex-symbol" }, ...symbol, ...typeset(rest)));
}

/** The usual values in short, in the room that the head has left. */
const usually = ({ usual }) => (usual
  ? [make("span", { class: "ex-usual", "aria-hidden": "true" }, make("span", {}, `usual ${usual.split(":")[0]}`))] : []);

/** The button that draws a statistic over the slider's whole range; none beside a control that has no such range. */
function sweepButton(model, { name, label }) {
  if (!model.get("sweeps").includes(name)) return { nodes: [], paint: () => {} };
  const node = button("sweep", "ex-link ex-sweep", () => press(model, ["sweep", name]), {
    "aria-label": `Sweep ${label}`, title: "Draws a statistic of the last layer over this slider's whole range",
  });
  const paint = (disabled) => {
    node.disabled = disabled;
    mark(node, "aria-pressed", String(model.get("sweeping") === name));
  };
  return { nodes: [node], paint };
}

/** One field: its head (title, reset, entry), what is below, offers, and a line; and what paints it. */
function control(model, field) {
  const id = `ex-${(count += 1)}`;
  const { name, initial } = field;
  const description = joined([field.description, field.usual && `Usual: ${field.usual}.`], " ");
  const get = (trait) => model.get(trait)[name];
  const send = (value, held = false) => {
    if (get("values") !== value || model.get("held") !== held) { // nothing new is no change: it would never be answered
      model.set({ values: { ...model.get("values"), [name]: value }, held });
      sendChange(model);
    }
    painted = null; // also what was written otherwise: 64.0 is 64
    paint();
  };
  const letGo = () => {
    if (!model.get("held")) return;
    model.set("held", false);
    sendChange(model);
  };
  const { before = [], after = [], below = [], paint: paintValue } = LOOKS[field.look](field, id, send, letGo);
  const first = worded(field, initial);
  const reset = button("reset", "ex-reset", () => send(initial), {
    "aria-label": `Reset ${field.label} to ${first}`, title: `Back to ${first}`,
  });
  const sweep = sweepButton(model, field);
  const note = make("p", { class: "ex-hint", id: `${id}-note` });
  const ways = make("p", { class: "ex-hint ex-ways" });
  const offers = make("div", { class: "ex-offers" });
  const changes = make("p", { class: "ex-changes", role: "status" });
  const root = make("div", { class: "ex-control", "data-field": name, "data-look": field.look, title: description },
    make("div", { class: "ex-head" }, ...before, title(field, id), ...usually(field), ...sweep.nodes, reset, ...after), ...below, offers, note,
    ways,
    changes);
  const inputs = root.querySelectorAll("input, select");
  let painted = null; // what the control shows, as text

  function paint() {
    const value = get("values");
    const disabled = model.get("disabled").includes(name);
    const refused = model.get("refused").includes(name);
    // Of all controls few change at once; a browser that fills in forms looks at each again that was written.
    const traits = ["excluded", "notes", "changes", "offers"].map(get);
    const shown = JSON.stringify([value, disabled, refused, model.get("sweeping") === name, ...traits]);
    if (shown === painted) return;
    painted = shown;
    const chosen = field.options.find((option) => option.value === value);
    const excluded = get("excluded") ?? [];
    paintValue(value, (option) => excluded.find((item) => item.value === option));
    write(ways, disabled || field.look === "list" ? "" : waysOf(field, excluded.filter((item) => item.value !== value)));
    write(note, get("notes") ?? (chosen ? about(chosen) : ""), cited);
    sayChanges(changes, get("changes") ?? []);
    root.classList.toggle("ex-disabled", disabled);
    root.classList.toggle("ex-refused", refused);
    reset.classList.toggle("ex-hidden", value === initial);
    offer(model, name, offers, disabled);
    sweep.paint(disabled);
    inputs.forEach((input) => {
      input.disabled = disabled;
      mark(input, "aria-invalid", String(refused));
      describe(input, note.id, description);
    });
  }
  return { root, paint };
}

/** The options that would be refused, by what has to be changed first. */
function waysOf(field, excluded) {
  const ways = new Map();
  excluded.forEach(({ value, way }) => ways.set(way, [...ways.get(way) ?? [], worded(field, value)]));
  return [...ways].map(([way, options]) => `${options.join(", ")}: ${way}`).join("; ");
}

/** What is read out with an input: the line below it, or the control's description; of an option, why it is excluded. */
function describe(input, line, description) {
  if (input.exReason) input.removeAttribute("aria-describedby");
  else mark(input, "aria-describedby", line);
  mark(input, "aria-description", input.exReason ?? description);
}

/** What a choice changed, in words: a label, the old value, the new one. */
function sayChanges(node, changes) {
  const words = ([label, old, now]) => make("span", {}, ...typeset(`${label} `),
    make("span", { class: "ex-step" }, `${old} → `, make("b", {}, now)));
  node.replaceChildren(...(changes.length ? ["Changed: "] : []), ...changes.map(words));
}

/** The buttons below a control: what is there already stays, and with it the focus. */
function offer(model, name, box, disabled) {
  const offers = model.get("offers")[name] ?? [];
  [...box.children].slice(offers.length).forEach((node) => node.remove());
  const kept = box.children.length;
  box.append(...offers.slice(kept).map(({ label, title: words }, index) => (
    button(label, "ex-offer", () => press(model, [name, kept + index]), { title: words }))));
  [...box.children].forEach((node) => { node.disabled = disabled; });
}

/** Shows and hides the folded fields of a group, each in its place. One that has the focus is not taken away. */
function moreButton(model, title, nodes) {
  let open = false;
  const more = button("", "ex-link ex-more", () => {
    open = !open;
    more.setAttribute("aria-expanded", String(open));
    paint();
  }, { "aria-expanded": "false" });
  function paint() {
    const folded = nodes.filter((node) => model.get("folded").includes(node.dataset.field));
    nodes.forEach((node) => node.classList.toggle(
      "ex-folded", !open && folded.includes(node) && !node.contains(document.activeElement)));
    more.hidden = folded.length === 0;
    put(more, open ? `Fewer in ${title}` : `More in ${title} (${folded.length})`);
  }
  return { more, paint };
}

/** All sections; those with a title fold. Returns what paints the fields. */
function draw(model, el) {
  const opened = [...el.querySelectorAll("details[open]")].map((node) => node.dataset.section);
  const paints = [];
  const sections = model.get("sections").map((section) => {
    const nodes = section.fields.map((field) => {
      const { root, paint } = control(model, field);
      paints.push(paint);
      return root;
    });
    if (!section.title) return make("div", { class: "ex-section" }, ...nodes);
    const { more, paint } = moreButton(model, section.title, nodes);
    paints.push(paint);
    const fold = make("details", { class: "ex-section", "data-section": section.title },
      make("summary", {}, section.title), ...nodes, more);
    fold.open = opened.includes(section.title);
    return fold;
  });
  const summary = make("p", { class: "ex-summary" });
  el.replaceChildren(...sections, summary);
  el.querySelectorAll("input, select, summary").forEach((node) => { node.dataset.lmSuppressShortcuts = "true"; });
  return () => {
    paints.forEach((paint) => paint());
    put(summary, model.get("summary"));
  };
}

export default {
  render({ model, el }) {
    become(el, "ex-controls", { role: "group", "aria-label": model.get("label") });
    let paint = () => {};
    const ends = [
      follow(model, "sections", () => {
        paint = draw(model, el);
        paint();
      }),
      follow(model, "values notes excluded offers changes folded disabled refused summary sweeping", () => paint()),
    ];
    return () => ends.forEach((end) => end());
  },
};
