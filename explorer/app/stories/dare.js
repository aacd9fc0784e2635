/* A dare on the first visit: a switch that changes the page's design, beside its effect on attention and on one number.

   A browser that was here and has closed it is not offered it again; nor is a visitor who follows a link. */

const offerMark = browserStorage("transformer-signal-explorer: stories were offered"); // empty until the dares were closed
const onMark = browserStorage("transformer-signal-explorer: a dare was on", "sessionStorage"); // the page's link when it was left
const CELLS = 16; // of a side of the pattern, as in `dare.py`

/** The pattern of attention: a square for each pair of tokens, whose opacity glides by the style sheet. */
function patternPicture() {
  const cells = Array.from({ length: CELLS * CELLS }, (_, index) => makeSvg("rect", {
    x: index % CELLS, y: Math.floor(index / CELLS), width: 1, height: 1, "fill-opacity": 0,
  }));
  const svg = makeSvg("svg", { class: "ex-dare-pattern", viewBox: `0 0 ${CELLS} ${CELLS}`, role: "img" }, ...cells);
  const paint = (shades, origin) => {
    svg.style.display = shades.length ? "" : "none";
    setAttribute(svg, "aria-label", `Attention of ${CELLS} tokens to each other, ${origin}`);
    shades.forEach((shade, index) => { cells[index].style.fillOpacity = `${shade}%`; });
  };
  return { svg, paint };
}

/** The number as a bar with the theory's as a tick, and in words. */
function numberBar() {
  const [title, words, scale] = [make("b"), make("p", { role: "status" }), make("small")];
  const [fill, tick] = [make("span", { class: "ex-dare-fill" }), make("span", { class: "ex-dare-tick" })];
  const bar = make("div", { class: "ex-dare-bar", "aria-hidden": "true" }, fill, tick);
  const paint = (dare, predicted, measured) => {
    setText(title, dare.title);
    setText(scale, dare.scale);
    tick.hidden = !predicted.words;
    if (predicted.words) tick.style.left = `${100 * predicted.share}%`;
    bar.classList.toggle("ex-dare-waits", !measured.words); // the bar is of the design before
    if (measured.words) fill.style.width = `${100 * measured.share}%`;
    const parts = [[predicted, "predicted"], [measured, "measured"]].filter(([value]) => value.words);
    setText(words, parts.map(([value, origin]) => `${origin}: ${value.words}`).join(" · "));
  };
  return { node: make("div", { class: "ex-dare-number" }, title, " ", scale, bar, words), paint };
}

export function dare(model, el) {
  const isOurs = hasAddress() && Boolean(location.search) && location.search === onMark.get();
  if (isOurs && !offerMark.get()) { // the page was loaded anew while a dare was on: that design is no link's
    onMark.set("");
    location.replace(location.pathname);
    return () => {};
  }
  if (offerMark.get() || (hasAddress() && location.search)) {
    model.send(["close"]); // the kernel learns only now that this browser needs no offer
    return () => {};
  }
  const { svg, paint: paintPattern } = patternPicture(), { node: numberNode, paint: paintNumber } = numberBar();
  const label = make("span"), words = make("p");
  const flick = button(make("span", { class: "ex-dare-knob" }), "ex-dare-switch",
    () => model.act(["switch", !model.get("on")]), { role: "switch" });
  flick.append(label);
  const close = () => {
    offerMark.set("1");
    model.act(["close"]);
  };
  const next = button("", "ex-button", () => {
    const { number, count } = model.get("dare");
    if (number < count) {
      model.act(["next"]);
      flick.focus();
    } else close();
  });
  el.append(make("section", { class: "ex-dare-box", "aria-label": "A dare" },
    make("div", { class: "ex-dare-ask" }, flick, words), svg, numberNode,
    make("div", { class: "ex-dare-tools" }, next, button("Close", "ex-link", close, {
      title: "Back to the design before; Stories has more" }))));
  const stopMarking = listen(window, "pagehide", () => {
    if (hasAddress() && model.get("on")) onMark.set(location.search);
  });
  return callAll([stopMarking, follow(model, "dare on tried predicted measured pattern origin", () => {
    const offered = model.get("dare");
    setText(label, offered.label ?? "");
    setText(words, offered.words ?? "");
    setAttribute(flick, "aria-checked", String(model.get("on")));
    next.hidden = !model.get("tried");
    setText(next, offered.number < offered.count ? "Next dare" : "Done");
    paintNumber(offered, model.get("predicted"), model.get("measured"));
    paintPattern(model.get("pattern"), model.get("origin"));
  })]);
}
