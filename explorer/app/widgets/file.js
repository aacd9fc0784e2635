/* Uploads a person's own file, which the kernel may refuse, and offers the way back to the built-in file.

   A file travels in parts. The page sends a part when the kernel has answered the part before, and no faster
   than a server allows a visitor to send: `serve/visits.py` limits the bytes at once and per second. */

// Half of the server's burst and four fifths of its rate, because the page sends other messages too.
const [BURST_BYTES, BYTES_PER_SECOND] = [8e6, 0.8e6];
const pace = { bytes: 0, at: 0 }; // a leaky bucket: the bytes in it, and the time of the last look at it

/** Waits until the server allows a message of this size. */
async function waitForRoom(bytes) {
  const now = performance.now();
  pace.bytes = Math.max(0, pace.bytes - ((now - pace.at) * BYTES_PER_SECOND) / 1000) + bytes;
  pace.at = now;
  const excess = pace.bytes - BURST_BYTES;
  if (excess > 0) await new Promise((resolve) => { setTimeout(resolve, (1000 * excess) / BYTES_PER_SECOND); });
}

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
    await waitForRoom(bytes.byteLength);
    received = await request(model, ["part", received], [bytes]);
    showShare(received / file.size);
  }
}

export default {
  render({ model, el }) {
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
  },
};
