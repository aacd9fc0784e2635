/* Files: those that a person takes home, and a person's own, which the kernel may refuse.

   An own file travels in parts: the page sends a part when the kernel has answered the part before. The largest file,
   of 5 MB, is a third of what a server lets a visitor send at once (`serve/visits.py`). */

/** Sends a message. Resolves to the number of bytes of the file that the kernel then has; negative if it refused. */
function request(model, content, buffers) {
  return new Promise((resolve) => {
    const onAnswer = ({ got }) => {
      if (got === undefined) return;
      model.off("message", onAnswer);
      resolve(got);
    };
    model.on("message", onAnswer);
    model.send(content, buffers);
  });
}

/** Sends a file in parts; `showShare` receives the share of it that has arrived. */
async function sendParts(model, file, showShare) {
  let received = await request(model, ["begin", file.name, file.size]);
  while (received >= 0 && received < file.size) {
    const bytes = await file.slice(received, received + model.get("part")).arrayBuffer();
    received = await request(model, ["part", received], [bytes]);
    showShare(received / file.size);
  }
}

/** The entry of a file of one's own, with the way back to the built-in file. */
export function file(model, el) {
  const current = make("span", { class: "ex-symbol" });
  const progress = make("progress", { max: 1, value: 0, "aria-label": "Sent of the file", hidden: "true" });
  const send = async () => {
    const [file] = input.files;
    if (!file) return;
    input.disabled = true;
    progress.hidden = false;
    try {
      await sendParts(model, file, (share) => { progress.value = share; });
    } finally {
      input.disabled = false;
      Object.assign(progress, { hidden: true, value: 0 });
    }
  };
  const input = make("input", {
    type: "file", accept: model.get("accept"), "aria-label": model.get("about"), ...OWN_KEYS,
    onchange: () => send().finally(() => { input.value = ""; }), // or the same file could not be chosen again
  });
  const back = button(model.get("other"), "ex-link", () => {
    model.act(["other"]);
    input.focus();
  });
  const status = make("p", { class: "ex-hint", role: "status" });
  const label = make("label", { class: "ex-label" }, model.get("label"));
  become(el, "ex-file");
  el.append(make("div", { class: "ex-head" }, label, current), input, progress, status, back);
  return follow(model, "now said refused own", () => {
    current.textContent = model.get("now");
    status.textContent = model.get("said");
    status.classList.toggle("ex-refusal", model.get("refused"));
    back.hidden = !model.get("own");
  });
}

/** A fold with files to save, a row for each. The text of some files can be shown and copied here first. */
export function takehome(model, el) {
  const rows = model.get("rows").map(({ label, words, shown }, index) => {
    const show = button("Show", "ex-link", () => {
      if (model.get("reading") === index) model.change({ reading: -1 });
      else model.act(["show", index]);
    }, { "aria-label": `Show ${label}`, "aria-expanded": "false" });
    const save = button("Save", "ex-link", () => model.act(["save", index]), { "aria-label": `Save ${label}` });
    const node = make("li", {}, make("b", {}, label), make("span", {}, words), ...(shown ? [show] : []), save);
    return { show, node };
  });
  const field = make("textarea", { readonly: "true", spellcheck: "false", wrap: "off", ...OWN_KEYS });
  const copy = button("Copy", "ex-button", async () => {
    if (!await copyText(field)) document.execCommand("copy"); // of the field's selection
    note.textContent = "Copied.";
  });
  const text = make("div", { class: "ex-home-text" }, field, copy);
  const note = make("p", { class: "ex-hint", role: "status" });
  become(el, "ex-home");
  el.append(make("details", {}, make("summary", {}, "Take it home"),
    make("ul", {}, ...rows.map(({ node }) => node)), text, note));
  return follow(model, "text reading note refused", () => {
    const open = model.get("reading");
    text.hidden = open < 0;
    field.value = model.get("text");
    field.rows = Math.min(20, field.value.split("\n").length + 1);
    field.setAttribute("aria-label", model.get("rows")[open]?.label ?? "Text");
    rows.forEach(({ show }, index) => {
      show.textContent = index === open ? "Hide" : "Show";
      show.setAttribute("aria-expanded", String(index === open));
    });
    note.textContent = model.get("note");
    note.classList.toggle("ex-refusal", model.get("refused"));
  });
}
