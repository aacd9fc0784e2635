/* Draws a ControlBox with native controls, so that keyboard, touch and screen readers work as everywhere.
 *
 * State lives in the model: `values` is written here as a whole at every move (the widget protocol keeps one message
 * in flight and merges the rest), and whatever comes back is painted by `paint`. Nothing is checked here; an entry
 * that is not a number travels as the text it is, and the kernel says in words why it was refused.
 */

// Ids, and the names of radio groups, must be unique in the page, but every widget has its own copy of this module.
const ids = (globalThis[Symbol.for("transformer-signal-explorer/ids")] ??= { count: 0 });

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== "" && value != null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}

/** What is in an entry: a number, or the text it is. 12,5 is 12.5; 1,024 could be either, and is left to be refused. */
const read = (text) => {
  const trimmed = text.trim().replace("−", "-");
  const thousands = /^[-+]?[1-9]\d{0,2},\d{3}$/.test(trimmed);
  const plain = thousands ? trimmed : trimmed.replace(/^([-+]?\d*),(\d+)$/, "$1.$2");
  return plain !== "" && Number.isFinite(Number(plain)) ? Number(plain) : trimmed;
};

/** Index of the step nearest to a value; ladders rise, so nearness by ratio where all are positive. */
function nearest(steps, value) {
  const axis = steps[0] > 0 && steps[steps.length - 1] / steps[0] > 20 ? Math.log : (x) => x;
  const gaps = steps.map((step) => Math.abs(axis(step) - axis(value)));
  return gaps.reduce((best, gap, index) => (gap < gaps[best] ? index : best), 0);
}

function title(field) {
  const symbol = [field.symbol, field.unit].filter(Boolean).join(", ");
  return [make("span", { class: "ex-label" }, field.label), make("span", { class: "ex-symbol" }, ...typeset(symbol))];
}

const spoken = (field) => [field.label, field.symbol, field.unit].filter(Boolean).join(", ");

/* Each look returns its nodes and `paint(value)`, which shows a value that came from anywhere. */

function entry(field, id, send) {
  let writing = false; // a number that is being typed is not painted over
  const done = () => { writing = false; send(read(input.value)); };
  const input = make("input", {
    class: "ex-entry", id, type: "text", inputmode: "decimal", autocomplete: "off", spellcheck: "false",
    "aria-label": spoken(field), onchange: done,
    oninput: () => { writing = true; },
    onblur: () => { writing = false; },
    onkeydown: (event) => { // in JupyterLab, Enter does not make a `change`
      if (event.key === "Enter") done();
    },
  });
  const paint = (value) => { // to the last digit: what stands there is what is measured
    if (!writing && input.value !== String(value)) input.value = String(value);
  };
  return { input, paint };
}

function slider(field, id, send) {
  const { input, paint: paintEntry } = entry(field, `${id}-entry`, send);
  const range = make("input", {
    id, type: "range", min: 0, max: field.steps.length - 1, step: 1, "aria-label": spoken(field),
    oninput: () => send(field.steps[Number(range.value)]),
  });
  const paint = (value) => {
    paintEntry(value);
    if (typeof value === "number" && field.steps[Number(range.value)] !== value) {
      range.value = nearest(field.steps, value);
    }
    range.setAttribute("aria-valuetext", [value, field.unit].filter(Boolean).join(" "));
  };
  const row = make("div", { class: "ex-row" }, range, input);
  return { head: [make("label", { class: "ex-title", for: id }, ...title(field))], tail: [], body: [row], paint };
}

function lone(field, id, send) {
  const { input, paint } = entry(field, id, send);
  return { head: [make("label", { class: "ex-title", for: id }, ...title(field))], tail: [input], body: [], paint };
}

function toggle(field, id, send) {
  const box = make("input", { id, type: "checkbox", onchange: () => send(box.checked) });
  const paint = (value) => { box.checked = value === true; };
  return { head: [box, make("label", { class: "ex-title", for: id }, ...title(field))], tail: [], body: [], paint };
}

function segments(field, id, send) {
  const radios = field.options.map((option) => make("input", {
    type: "radio", name: id, id: `${id}-${option.value}`, value: option.value, onchange: () => send(option.value),
  }));
  const labels = field.options.map((option) => make(
    "label", { class: "ex-segment", for: `${id}-${option.value}`, title: about(option) }, option.label));
  const paint = (value) => radios.forEach((radio) => { radio.checked = radio.value === value; });
  const group = make("div", { class: "ex-segments", role: "radiogroup", "aria-labelledby": `${id}-title` },
    ...radios.flatMap((radio, index) => [radio, labels[index]]));
  return { head: [make("span", { class: "ex-title", id: `${id}-title` }, ...title(field))], tail: [], body: [group], paint };
}

function list(field, id, send) {
  const options = field.options.map((option) => make("option", { value: option.value }, option.label));
  const select = make("select", { id, onchange: () => send(select.value) }, ...options);
  const paint = (value) => { select.value = value; };
  return { head: [make("label", { class: "ex-title", for: id }, ...title(field))], tail: [], body: [select], paint };
}

const LOOKS = { slider, entry: lone, switch: toggle, segments, list };
const about = (option) => [option.formula, option.source].filter(Boolean).join(" · ");

/** One field: its head (title, reset, entry), its body, and a line below. */
function control(model, field) {
  const id = `ex-${(ids.count += 1)}`;
  const send = (value) => {
    if (model.get("values")[field.name] !== value) { // nothing new is no move: it would never be answered
      model.set("values", { ...model.get("values"), [field.name]: value });
      move(model);
    }
    paint();
  };
  const parts = LOOKS[field.look](field, id, send);
  const reset = make("button", {
    type: "button", class: "ex-reset", "aria-label": `Reset ${field.label} to ${worded(field, field.initial)}`,
    title: `Back to ${worded(field, field.initial)}`, onclick: () => send(field.initial),
  }, "reset");
  const note = make("p", { class: "ex-hint", id: `${id}-note` });
  const offers = make("div", { class: "ex-offers" });
  const root = make("div", { class: "ex-control", "data-field": field.name, "data-look": field.look, title: field.description },
    make("div", { class: "ex-head" }, ...parts.head, reset, ...parts.tail), ...parts.body,
    offers, note);
  const inputs = root.querySelectorAll("input, select");
  inputs.forEach((input) => {
    input.setAttribute("aria-describedby", note.id);
    input.setAttribute("aria-description", field.description);
  });

  function paint() {
    const value = model.get("values")[field.name];
    const disabled = model.get("disabled").includes(field.name);
    const refused = model.get("refused").includes(field.name);
    const chosen = field.options.find((option) => option.value === value);
    parts.paint(value);
    write(note, model.get("notes")[field.name] ?? (chosen ? about(chosen) : ""));
    root.classList.toggle("ex-disabled", disabled);
    root.classList.toggle("ex-refused", refused);
    reset.classList.toggle("ex-hidden", value === field.initial);
    offer(model, field.name, offers, disabled);
    inputs.forEach((input) => {
      input.disabled = disabled;
      input.setAttribute("aria-invalid", String(refused));
    });
  }
  paint();
  return { root, paint };
}

/** The buttons below a control: what is there already stays, and with it the focus. */
function offer(model, name, box, disabled) {
  const offers = model.get("offers")?.[name] ?? [];
  [...box.children].slice(offers.length).forEach((button) => button.remove());
  const count = box.children.length;
  offers.slice(count).forEach(({ label, title }, index) => box.append(make("button", {
    type: "button", class: "ex-offer", title, "data-lm-suppress-shortcuts": "true",
    onclick: () => press(model, [name, count + index]),
  }, label)));
  [...box.children].forEach((button) => { button.disabled = disabled; });
}

function worded(field, value) {
  const option = field.options.find((item) => item.value === value);
  if (option) return option.label;
  return typeof value === "boolean" ? (value ? "on" : "off") : String(value);
}

/** All sections; those with a title fold. */
function draw(model, el) {
  const paints = [];
  const folded = new Set([...el.querySelectorAll("details:not([open])")].map((node) => node.dataset.section));
  const opened = new Set([...el.querySelectorAll("details[open]")].map((node) => node.dataset.section));
  const parts = model.get("sections").map((section) => {
    const fields = section.fields.map((field) => control(model, field));
    fields.forEach((field) => paints.push(field.paint));
    const nodes = fields.map((field) => field.root);
    if (!section.title) return make("div", { class: "ex-section" }, ...nodes);
    const fold = make("details", { class: "ex-section", "data-section": section.title },
      make("summary", {}, section.title), ...nodes);
    fold.open = opened.has(section.title) && !folded.has(section.title);
    return fold;
  });
  const summary = make("p", { class: "ex-summary" });
  paints.push(() => { summary.textContent = model.get("summary"); });
  summary.textContent = model.get("summary");
  el.replaceChildren(...parts, summary);
  // JupyterLab would take arrow keys and letters from whatever has the focus, unless that element itself says no.
  el.querySelectorAll("input, select, button, summary").forEach((node) => {
    node.setAttribute("data-lm-suppress-shortcuts", "true");
  });
  return paints;
}

export default {
  render({ model, el }) {
    el.classList.add("ex-controls");
    el.setAttribute("role", "group");
    el.setAttribute("aria-label", model.get("label"));
    let paints = draw(model, el);
    const paint = () => paints.forEach((one) => one());
    const redraw = () => { paints = draw(model, el); };
    const events = "change:values change:notes change:offers change:disabled change:refused change:summary";
    model.on(events, paint);
    model.on("change:sections", redraw);
    return () => {
      model.off(events, paint);
      model.off("change:sections", redraw);
    };
  },
};
