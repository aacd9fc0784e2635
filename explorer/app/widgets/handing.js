/* Files that the kernel makes and the browser saves. Each part is a message `{file, media}` with its bytes beside it.
   A large file comes in parts, which have its `number`, too; the next one comes when it is asked for, while any are
   `left`. */

function saveFile({ file, media }, parts) {
  const url = URL.createObjectURL(new Blob(parts, { type: media }));
  make("a", { href: url, download: file }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // a browser may still be reading it
}

/** Saves every file that a model's kernel sends; returns what ends it. */
function savesFiles(model) {
  const coming = new Map(); // parts of files that are on their way
  const take = (content, buffers) => {
    if (!content.file) return;
    const parts = [...(coming.get(content.number) ?? []), buffers[0]];
    coming.set(content.number, parts);
    if (content.left) {
      model.send(["more", content.number, parts.length]);
    } else {
      coming.delete(content.number);
      saveFile(content, parts);
    }
  };
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
