/* Files that the kernel makes and the browser saves: a message `{file, media}` with the file's bytes beside it. */

function saveFile({ file, media }, bytes) {
  const url = URL.createObjectURL(new Blob([bytes], { type: media }));
  make("a", { href: url, download: file }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // a browser may still be reading it
}

/** Saves every file that a model's kernel sends; returns what ends it. */
function savesFiles(model) {
  const take = (content, buffers) => content.file && saveFile(content, buffers[0]);
  model.on("msg:custom", take);
  return () => model.off("msg:custom", take);
}

/** A title as the name of a file. */
const fileName = (title) => title.toLowerCase().replace(/[^a-z0-9]+/g, "-") || "chart";

/** A button that unfolds others, each of which saves in one format; keys and closing are the browser's own. */
function saveMenu(formats) {
  const menu = make("div", { class: "ex-save-menu", popover: "auto", role: "group", "aria-label": "Save as" });
  const opener = button("Save", "ex-chart-tool", () => {}, {
    title: "Save the chart", "aria-label": "Save the chart", "aria-haspopup": "true",
  });
  opener.popoverTargetElement = menu;
  menu.append(...Object.entries(formats).map(([words, save]) => {
    const title = `Save as ${words}`;
    return button(words, "ex-chart-tool", () => { menu.hidePopover(); save(); }, { title, "aria-label": title });
  }));
  const close = () => menu.hidePopover();
  menu.addEventListener("toggle", ({ newState }) => {
    const [add, edge] = [newState === "open", opener.getBoundingClientRect()];
    Object.assign(menu.style, { top: `${edge.bottom + 2}px`, left: `${Math.max(4, edge.right - menu.offsetWidth)}px` });
    window[add ? "addEventListener" : "removeEventListener"]("scroll", close, { capture: true });
  });
  return [opener, menu];
}
