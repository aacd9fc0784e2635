/* Saves a chart: the menu of formats, and the picture, which is the plot with its title, its caption and the names of
   its designs. The browser's print dialog makes a PDF of it, and the kernel the other formats. */

const NARROWEST_PICTURE = 640; // pixels; on a narrower picture the legend takes more room than the data
const LOWEST_PICTURE = 220;
const LETTER = 6.5; // pixels of an average letter
const SETTINGS_BETWEEN = " · "; // in the words about a design

/** The page's colors and font, as they apply to a card. */
function palette(card) {
  const style = getComputedStyle(card);
  const color = (name) => style.getPropertyValue(`--ex-${name}`).trim();
  const [surface, border, text, muted, grid] = ["surface", "border", "text", "muted", "grid"].map(color);
  return { surface, border, text, muted, grid, family: style.fontFamily, size: Number(color("letters")) };
}

/** The text in lines of at most so many letters, broken between words. */
function wrapped(text, letters) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = `${lines.at(-1)} ${word}`.trim();
    if (longer.length <= letters) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines.filter(Boolean);
}

/** The text, or its beginning if it has more letters. */
function oneLine(text, letters) {
  const [first = "", ...others] = wrapped(text, letters);
  return others.length ? `${first} …` : first;
}

/** A legend of the designs, a line for each: traces without data that show each design's name and marks. */
function legendTraces(designs, letters) {
  return designs.map(({ name, hue, symbol, dash }) => ({
    type: "scatter", mode: "lines+markers", x: [null], y: [null], name: `<b>${tagged(oneLine(name, letters))}</b>`,
    legend: "legend2", showlegend: true,
    line: { color: hue, dash, width: 2 }, marker: { color: hue, symbol, size: 7 },
  }));
}

/** The settings that all designs share, as a caption; empty where there are none. */
function sharedSettings(designs) {
  const [first = [], ...others] = designs.map(({ about }) => about.split(SETTINGS_BETWEEN));
  const shared = first.filter((setting) => others.every((settings) => settings.includes(setting)));
  return shared.join(SETTINGS_BETWEEN);
}

/** A small button of a chart. Screen readers read its title. */
const chartButton = (label, title, onclick, attributes = {}) => (
  button(label, "ex-chart-tool", onclick, { title, "aria-label": title, ...attributes }));

/** A Save button and its menu, with a button for each format. The browser's popover handles keys and closing. */
function saveMenu(formats) {
  const menu = make("div", { class: "ex-save-menu", popover: "auto", role: "group", "aria-label": "Save as" });
  const opener = chartButton("Save", "Save the chart", null, { "aria-haspopup": "true" });
  opener.popoverTargetElement = menu;
  menu.append(...Object.entries(formats).map(([format, save]) => (
    chartButton(format, `Save as ${format}`, () => { menu.hidePopover(); save(); }))));
  const close = () => menu.hidePopover();
  menu.addEventListener("toggle", ({ newState }) => {
    const { bottom, right } = opener.getBoundingClientRect();
    Object.assign(menu.style, { top: `${bottom + 2}px`, left: `${Math.max(4, right - menu.offsetWidth)}px` });
    window[newState === "open" ? "addEventListener" : "removeEventListener"]("scroll", close, { capture: true });
  });
  return [opener, menu];
}

/** Has the browser print a drawing alone, on a page of its size: the dialog saves it as a PDF, of lines and letters. */
function printDrawing(svg, name, { width, height }) {
  document.querySelector(".ex-print")?.remove(); // a browser may not say that its dialog was closed
  const frame = make("iframe", { class: "ex-print", title: "Printed chart", tabindex: "-1", "aria-hidden": "true", onload: () => {
    const { contentDocument: page, contentWindow: printer } = frame;
    const rules = `@page { size: ${width}px ${height}px; margin: 0 } body { margin: 0 } svg { display: block }`;
    page.title = name; // browsers propose it as the file's name
    page.head.append(make("style", {}, rules));
    page.body.append(new DOMParser().parseFromString(svg, "image/svg+xml").documentElement);
    printer.addEventListener("afterprint", () => frame.remove());
    printer.print();
  } });
  document.body.append(frame);
}

/** Saves a figure as large as its plot, in the card's colors. `title` and `captions` stand above it. */
async function download(Plotly, figure, plot, card, { title, captions, designs }, format) {
  const { surface, text, muted } = palette(card);
  const width = Math.max(plot.clientWidth, NARROWEST_PICTURE);
  const lines = captions.flatMap((caption) => wrapped(caption, width / LETTER)).map(tagged);
  lines.push(...[oneLine(sharedSettings(designs), width / LETTER)].filter(Boolean).map(tagged));
  lines.push(...[figure.layout.title?.text].filter(Boolean)); // the plot's own title: a layer and head, or a map's design
  const traces = legendTraces(designs, (width - 160) / LETTER);
  const above = 50 + 16 * lines.length + 19 * traces.length;
  const height = Math.max(plot.clientHeight, LOWEST_PICTURE) + above;
  const { showlegend, margin, legend } = figure.layout;
  const legendHeight = legend?.yref === "container" ? plot.querySelector(".legend")?.getBBox().height ?? 0 : 0;
  const data = showlegend ? figure.data : figure.data.map((trace) => ({ ...trace, showlegend: false }));
  const layout = {
    ...figure.layout, width, height, showlegend: true, paper_bgcolor: surface,
    margin: { ...margin, t: Math.max(margin?.t ?? 10, legendHeight) + above },
    legend: legendHeight ? { ...legend, yref: "paper", y: 1, yanchor: "bottom" } : legend,
    title: {
      text: tagged(title), font: { size: 15, color: text }, pad: { l: 12, t: 10 },
      xref: "container", x: 0, xanchor: "left", yref: "container", y: 1, yanchor: "top",
      subtitle: { text: lines.join("<br>"), font: { size: 12, color: muted } },
    },
    legend2: { x: 0, xanchor: "left", y: 1, yanchor: "bottom", font: { size: 12, color: text } },
  };
  const filename = title.toLowerCase().replace(/[^a-z0-9]+/g, "-") || "chart";
  const picture = { data: [...data, ...traces], layout };
  if (format !== "pdf") return Plotly.downloadImage(picture, { format, filename, width, height, scale: 2 });
  const svg = await Plotly.toImage(picture, { format: "svg", width, height, imageDataOnly: true });
  return printDrawing(svg, filename, { width, height });
}
