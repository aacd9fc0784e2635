/* Buttons for files: the kernel sends the bytes, the browser downloads them. */

function download({ file, media }, bytes) {
  const url = URL.createObjectURL(new Blob([bytes], { type: media }));
  make("a", { href: url, download: file }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // a browser may still be reading it
}

export default {
  render({ model, el }) {
    el.classList.add("ex-saves");
    el.setAttribute("role", "group");
    el.setAttribute("aria-label", "Save");
    const buttons = model.get("kinds").map(({ name, label, title }) => {
      const node = button(label, "ex-link", () => model.send(name));
      node.title = title;
      return node;
    });
    const said = make("p", { class: "ex-hint", role: "status" });
    el.append(...buttons, said);
    const paint = () => {
      buttons.forEach((node) => { node.disabled = !model.get("enabled"); });
      said.textContent = model.get("said");
      said.classList.toggle("ex-refusal", model.get("refused"));
    };
    const take = (content, buffers) => download(content, buffers[0]);
    model.on("change:enabled change:said change:refused", paint);
    model.on("msg:custom", take);
    paint();
    return () => {
      model.off("change:enabled change:said change:refused", paint);
      model.off("msg:custom", take);
    };
  },
};
