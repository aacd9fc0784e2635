/* Saves a chart: the menu of sizes and formats, and the picture. As large as on the page it is the plot with its title, its
   caption and the names of its designs. For a paper or a slide it has a fixed size, black letters on white and a short
   legend: its caption is in the text, for which the page has words (`home.py`). The browser's print dialog makes a PDF of
   it, of lines and letters that can be searched, and the kernel the page that is HTML. */

const NARROWEST_PICTURE = 640; // pixels; on a narrower picture the legend takes more room than the data
const LOWEST_PICTURE = 220;
const LETTER = 6.5; // pixels of an average letter
const SETTINGS_BETWEEN = " · "; // in the words about a design

/** Sizes of a picture for a paper or a slide, in pixels of 1/96 inch: widths of 3.25 and 6.75 inches, letters of 8 points,
    and a slide of 13.3 × 7.5 inches. `lines` is the width of lines and dots, over that on the page. */
const SIZES = {
  "As on the page": null,
  "One column": { width: 312, height: 216, letters: 32 / 3, lines: 0.6 },
  "Two columns": { width: 648, height: 288, letters: 32 / 3, lines: 0.75 },
  "Slide": { width: 1280, height: 720, letters: 26, lines: 2, titled: true },
};
const PAPER = {
  surface: "#ffffff", border: "#000000", text: "#000000", muted: "#000000", grid: "#e0e0e0", family: "Helvetica, Arial, sans-serif",
};

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

/** Names of designs in lines of at most so many letters. A name that is longer is without the settings that all share. */
function legendNames(names, letters) {
  const settings = names.map((name) => name.split(", "));
  return settings.map(([first, ...others], at) => {
    const own = others.filter((setting) => !settings.every((all) => all.includes(setting)));
    const isShortened = names[at].length > letters && own.length > 0 && own.length < others.length;
    return wrapped(isShortened ? [first, "…", ...own].join(", ") : names[at], letters);
  });
}

/** A legend of the designs, one below the other: traces without data that show each design's name and marks. */
function legendTraces(designs, letters) {
  const names = legendNames(designs.map(({ name }) => name), letters);
  return designs.map(({ hue, symbol, dash }, at) => ({
    type: "scatter", mode: "lines+markers", x: [null], y: [null], name: `<b>${names[at].map(tagged).join("<br>")}</b>`,
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

/** A Save button and its menu, with the sizes, a button for each format, and the way to words for a caption where the
    panel has them. The browser's popover handles keys and closing. */
function saveMenu(formats) {
  const menu = make("div", { class: "ex-save-menu", popover: "auto", role: "group", "aria-label": "Save as" });
  const size = make("select", { class: "ex-save-size", "aria-label": "Size of the picture" },
    ...Object.keys(SIZES).map((name) => make("option", {}, name)));
  const home = () => menu.closest(".ex-panel, .ex-main")?.querySelector(".ex-home details");
  const words = chartButton("Caption, BibTeX", "Words for a caption, and sources", () => {
    menu.hidePopover();
    home().open = true;
    home().firstChild.focus();
  });
  const opener = chartButton("Save", "Save the chart", null, { "aria-haspopup": "true" });
  opener.popoverTargetElement = menu;
  menu.append(size, ...Object.entries(formats).map(([format, save]) => (
    chartButton(format, `Save as ${format}`, () => { menu.hidePopover(); save(size.value); }))), words);
  const close = () => menu.hidePopover();
  menu.addEventListener("toggle", ({ newState }) => {
    words.hidden = !home();
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

/** A trace with lines and dots so many times as large as on the page, and letters of a size. */
function resized(trace, { lines: factor, letters: size }) {
  const { type = "scatter", line, marker, textfont, colorbar } = trace;
  if (colorbar) return { ...trace, colorbar: { ...colorbar, tickfont: { size }, title: { ...colorbar.title, font: { size } } } };
  if (type !== "scatter") return trace;
  const times = (size) => (typeof size === "number" ? size * factor : size);
  return {
    ...trace,
    line: { ...line, width: times(line?.width ?? 2) },
    marker: { ...marker, size: times(marker?.size ?? 6), line: { ...marker?.line, width: times(marker?.line?.width ?? 0) } },
    textfont: { ...textfont, size },
  };
}

/** Entries of a short legend: the designs' names where there are several, else what dots and lines are. */
function shortLegend(designs, letters) {
  if (designs.length > 1) return legendTraces(designs, letters).map((trace) => ({ ...trace, legend: "legend" }));
  const [{ hue }] = designs;
  const entry = { type: "scatter", x: [null], y: [null], showlegend: true, line: { color: hue }, marker: { color: hue } };
  return [{ ...entry, mode: "markers", name: "measured" }, { ...entry, mode: "lines", name: "theory" }];
}

/** The picture of a figure that was dressed in `PAPER`, in one of `SIZES`. */
function paperPicture(figure, { title, designs }, size) {
  const { width, height, letters, titled = false } = size;
  const hasOwnLegend = figure.layout.showlegend && designs.length < 2;
  const own = hasOwnLegend ? figure.data : figure.data.map((trace) => ({ ...trace, showlegend: false }));
  const hasColors = figure.data.some(({ colorbar }) => colorbar); // and neither dots nor lines
  // beside a symbol of five letters' height; a bold letter is 0.6 as wide as high
  const entries = hasOwnLegend || hasColors || !designs.length ? [] : shortLegend(designs, (width / letters - 5) / 0.6);
  const layout = {
    ...figure.layout, width, height, paper_bgcolor: PAPER.surface, showlegend: hasOwnLegend || entries.length > 0,
    margin: { l: letters, r: letters, t: letters * (titled ? 4 : 0.5), b: letters },
    legend: { orientation: "h", x: 0, xanchor: "left", y: 1, yanchor: "bottom", font: { size: letters }, itemwidth: 30 },
    title: titled ? { text: tagged(title), font: { size: 1.3 * letters }, x: 0.02, xref: "container", y: 1, yref: "container",
      yanchor: "top", pad: { t: letters / 2 } } : undefined,
  };
  for (const name of Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key))) {
    const axis = layout[name];
    const heading = axis.title && { ...axis.title, font: { size: letters }, standoff: letters / 2 };
    layout[name] = { ...axis, automargin: true, title: heading, tickfont: { size: letters } };
  }
  return { data: [...own, ...entries].map((trace) => resized(trace, size)), layout };
}

/** The picture of a figure as large as its plot, in the card's colors. `title` and `captions` stand above it. */
function pagePicture(figure, plot, card, { title, captions, designs }) {
  const { surface, text, muted } = palette(card);
  const width = Math.max(plot.clientWidth, NARROWEST_PICTURE);
  const lines = captions.flatMap((caption) => wrapped(caption, width / LETTER)).map(tagged);
  lines.push(...[oneLine(sharedSettings(designs), width / LETTER)].filter(Boolean).map(tagged));
  lines.push(...[figure.layout.title?.text].filter(Boolean)); // the plot's own title: a layer and head, or a map's design
  const traces = legendTraces(designs, (width - 160) / LETTER);
  const above = 50 + 16 * lines.length + 19 * traces.flatMap(({ name }) => name.split("<br>")).length;
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
  return { data: [...data, ...traces], layout };
}

/** Saves a picture in a format, under the title of its chart. */
async function savePicture(Plotly, picture, title, format, scale) {
  const { width, height } = picture.layout;
  const filename = title.toLowerCase().replace(/[^a-z0-9]+/g, "-") || "chart";
  if (format !== "pdf") return Plotly.downloadImage(picture, { format, filename, width, height, scale });
  const svg = await Plotly.toImage(picture, { format: "svg", width, height, imageDataOnly: true });
  return printDrawing(svg, filename, { width, height });
}
