/* Saves files that the kernel makes, and the menu that offers the formats of a chart.

   A file is a message `{file, media}` with its bytes beside it. A large file comes in parts, which carry the
   `number` of the file and how many parts are `left`; the page requests each further part. */

function saveFile({ file, media }, parts) {
  const url = URL.createObjectURL(new Blob(parts, { type: media }));
  make("a", { href: url, download: file }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // a browser may still be reading it
}

/** Saves every file that a model's kernel sends. Returns a function that stops. */
function saveIncomingFiles(model) {
  const incomplete = new Map(); // the number of a file to the parts of it that have arrived
  const onMessage = (content, buffers) => {
    if (!content.file) return;
    const parts = [...(incomplete.get(content.number) ?? []), buffers[0]];
    incomplete.set(content.number, parts);
    if (content.left) {
      model.send(["more", content.number, parts.length]);
    } else {
      incomplete.delete(content.number);
      saveFile(content, parts);
    }
  };
  model.on("message", onMessage);
  return () => model.off("message", onMessage);
}

/** The name of a file, made of a title. */
const fileName = (title) => title.toLowerCase().replace(/[^a-z0-9]+/g, "-") || "chart";

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
