/* A chart as a file: the plot, its title and caption, and the designs in it by name. */

const NARROWEST_PICTURE = 640; // pixels; in less, a legend takes more room than the data

/** The page's colors where a card stands. */
function palette(card) {
  const style = getComputedStyle(card);
  const read = (name) => style.getPropertyValue(`--ex-${name}`).trim();
  const [surface, border, text, muted, grid] = ["surface", "border", "text", "muted", "grid"].map(read);
  return { surface, border, text, muted, grid, family: style.fontFamily };
}

/** Lines of at most so many letters, broken between words. */
function wrapped(text, letters) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = `${lines.at(-1)} ${word}`.trim();
    if (longer.length <= letters) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines.filter(Boolean);
}

/** Names of designs with their marks, as a legend of traces that have no data. */
function legendTraces(designs, letters) {
  return designs.map(({ name, about, hue, symbol, dash }) => {
    const [first, ...more] = wrapped(`${name}: ${about}`, letters).map(tagged);
    const words = first.startsWith(tagged(name)) ? `<b>${tagged(name)}</b>${first.slice(tagged(name).length)}` : first;
    return {
      type: "scatter", mode: "lines+markers", x: [null], y: [null], name: [words, ...more].join("<br>"),
      legend: "legend2", showlegend: true, line: { color: hue, dash, width: 2 }, marker: { color: hue, symbol, size: 7 },
    };
  });
}

/** The plot as it stands, zoom included, on the card's own paper; above it, what the page says of it. */
function download(Plotly, plot, card, { title, said, designs }, format) {
  const { surface, text, muted } = palette(card);
  const width = Math.max(plot.clientWidth, NARROWEST_PICTURE);
  const lines = said.flatMap((one) => wrapped(one, width / 6.5)).map(tagged);
  lines.push(...[plot.layout.title?.text].filter(Boolean)); // which layer and head, or whose map
  const traces = legendTraces(designs, (width - 160) / 6.5);
  const rows = traces.reduce((sum, { name }) => sum + name.split("<br>").length, 0);
  const above = 50 + 16 * lines.length + 19 * rows;
  const height = plot.clientHeight + above;
  const { showlegend, margin, legend } = plot.layout;
  const over = legend?.yref === "container" ? plot.querySelector(".legend")?.getBBox().height ?? 0 : 0;
  const data = showlegend ? plot.data : plot.data.map((trace) => ({ ...trace, showlegend: false }));
  const layout = {
    ...plot.layout, width, height, showlegend: true, paper_bgcolor: surface,
    margin: { ...margin, t: Math.max(margin?.t ?? 10, over) + above },
    legend: over ? { ...legend, yref: "paper", y: 1, yanchor: "bottom" } : legend,
    title: {
      text: tagged(title), font: { size: 15, color: text }, pad: { l: 12, t: 10 },
      xref: "container", x: 0, xanchor: "left", yref: "container", y: 1, yanchor: "top",
      subtitle: { text: lines.join("<br>"), font: { size: 12, color: muted } },
    },
    legend2: { x: 0, xanchor: "left", y: 1, yanchor: "bottom", font: { size: 12, color: text } },
  };
  const filename = fileName(title);
  return Plotly.downloadImage({ data: [...data, ...traces], layout }, { format, filename, width, height, scale: 2 });
}
