/* A file of a person's own, and the way back to what stands in its place. The kernel decides whether a file will do.

   A large one travels in parts, the next when the kernel has answered the last, and no faster than a server lets a
   visitor send (`serve/visits.py`: so many bytes at once, so many a second after). */

const [AT_ONCE, A_SECOND] = [8e6, 0.8e6]; // half of it, and four fifths: the page sends other things, too
const pace = { sent: 0, at: 0 };

async function paced(bytes) {
  const now = performance.now();
  pace.sent = Math.max(0, pace.sent - ((now - pace.at) * A_SECOND) / 1000) + bytes;
  pace.at = now;
  const over = pace.sent - AT_ONCE;
  if (over > 0) await new Promise((go) => { setTimeout(go, (1000 * over) / A_SECOND); });
}

/** Sends a message; resolves to how many bytes of a file the kernel has then. */
function answered(model, content, buffers) {
  return new Promise((resolve) => {
    const take = ({ got }) => {
      if (got === undefined) return;
      model.off("msg:custom", take);
      resolve(got);
    };
    model.on("msg:custom", take);
    model.send(content, undefined, buffers);
  });
}

async function sendParts(model, chosen, show) {
  let got = await answered(model, ["begin", chosen.name, chosen.size]);
  while (got >= 0 && got < chosen.size) {
    const bytes = await chosen.slice(got, got + model.get("part")).arrayBuffer();
    await paced(bytes.byteLength);
    got = await answered(model, ["part", got], [bytes]);
    show(got / chosen.size);
  }
}

export default {
  render({ model, el }) {
    const now = make("span", { class: "ex-symbol" });
    const file = make("input", {
      type: "file", accept: model.get("accept"), "aria-label": model.get("about"), ...OWN_KEYS,
      onchange: async () => {
        const [chosen] = file.files;
        if (!chosen) return;
        if (model.get("part")) {
          file.disabled = true;
          progress.hidden = false;
          try {
            await sendParts(model, chosen, (share) => { progress.value = share; });
          } finally {
            Object.assign(file, { disabled: false, value: "" });
            Object.assign(progress, { hidden: true, value: 0 });
          }
          return;
        }
        // One byte too many is enough to be refused in words, and does not choke the line.
        const bytes = await chosen.slice(0, model.get("most") + 1).arrayBuffer();
        sendAct(model, ["file", chosen.name], [bytes]);
        file.value = ""; // the same file may be chosen again
      },
    });
    const back = button(model.get("other"), "ex-link", () => {
      sendAct(model, ["other"]);
      file.focus();
    });
    const progress = make("progress", { max: 1, value: 0, "aria-label": "Sent of the file", hidden: "true" });
    const said = make("p", { class: "ex-hint", role: "status" });
    become(el, "ex-file");
    el.append(make("div", { class: "ex-head" }, make("label", { class: "ex-label" }, model.get("label")), now), file, progress,
      said, back);
    return follow(model, "now said refused own", () => {
      now.textContent = model.get("now");
      said.textContent = model.get("said");
      said.classList.toggle("ex-refusal", model.get("refused"));
      back.hidden = !model.get("own");
    });
  },
};
