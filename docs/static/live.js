/* Live figures of a lesson, without a kernel: each still becomes a chart with the controls of its figure.

   FIGURES comes from a script of the lesson's own, see benchmarks/grids.py: a figure's controls, and for each setting
   what is another than at the setting before. WORDS, of a Chinese page, has what is another there. */

const SETTINGS = { displayModeBar: false, responsive: true };

/** A copy of a record with changes, in which a value that is null takes its field away. */
function changed(record, changes) {
  const copy = { ...record };
  for (const [key, value] of Object.entries(changes)) {
    const isRecord = value && typeof value === "object" && !Array.isArray(value);
    if (isRecord) copy[key] = changed(copy[key] ?? {}, value);
    else if (value === null) delete copy[key];
    else copy[key] = value;
  }
  return copy;
}

/** An element with attributes and children. */
function element(name, attributes, ...children) {
  const node = Object.assign(document.createElement(name), attributes);
  node.append(...children);
  return node;
}

/** A control's native input. */
function inputOf({ kind, texts, start }) {
  if (kind === "switch") return element("input", { type: "checkbox", checked: start === 1 });
  if (kind !== "choice") return element("input", { type: "range", max: texts.length - 1, value: start });
  const select = element("select", {}, ...texts.map((text) => new Option(text)));
  select.selectedIndex = start;
  return select;
}

/** The index of an input's value among those of its control. */
function position(input) {
  if (input.type === "checkbox") return Number(input.checked);
  return input.selectedIndex ?? Number(input.value);
}

/** The records that changes lead to, from none. */
function records(changes) {
  const all = [];
  for (const change of changes) all.push(changed(all.at(-1) ?? {}, change));
  return all;
}

/** A figure in the words of its translation. */
function inWords({ controls, changes }, { labels, words }) {
  const replacements = records(words);
  return {
    controls: controls.map((control, place) => ({ ...control, label: labels[place] })),
    figures: records(changes).map((figure, place) => changed(figure, replacements[place])),
  };
}

/** Puts a chart in place of a still, and its controls above it. */
function enliven(still, { controls, figures }) {
  const inputs = controls.map(inputOf);
  const outputs = controls.map(() => element("span", { ariaHidden: true })); // an input says its value itself
  const labels = controls.map(({ label }, place) => (
    element("label", {}, element("span", {}, `${label} `, outputs[place]), inputs[place])));
  const form = element("form", { className: "live-controls" }, ...labels);
  const caption = element("p", { role: "status" });
  const plot = element("div", { className: "live-plot", role: "img" });

  // In plotly, a touch that scrolls the page would zoom by accident. A tap still arrives as mouse events.
  plot.addEventListener("touchstart", (event) => event.stopPropagation(), { capture: true });

  function draw() {
    let index = 0; // of the setting: the last control varies fastest
    controls.forEach(({ texts }, place) => {
      const input = inputs[place], text = texts[position(input)];
      index = index * texts.length + position(input);
      if (input.type !== "range") return;
      outputs[place].textContent = text;
      input.setAttribute("aria-valuetext", text);
    });
    const { traces, layout, sentence } = structuredClone(figures[index]); // plotly writes into what it gets
    caption.textContent = sentence;
    plot.ariaLabel = layout.meta.description;
    Plotly.react(plot, Object.values(traces), layout, SETTINGS);
  }

  form.addEventListener("input", draw);
  still.replaceChildren(still.querySelector("h3"), form, caption, plot);
  draw();
}

const stills = document.querySelectorAll(".ex-still");
FIGURES.forEach((figure, place) => {
  const { controls, changes } = figure;
  enliven(stills[place], window.WORDS ? inWords(figure, WORDS[place]) : { controls, figures: records(changes) });
});
