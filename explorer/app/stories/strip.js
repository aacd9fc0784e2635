/* Below the header: cards that offer stories to a first-time visitor, and the step of the story that is told. */

let questions = 0; // for ids
const SEEN = "transformer-signal-explorer: stories were offered";

/** Whether this browser was offered the stories on an earlier visit; a visitor may have forbidden it to remember. */
const offered = {
  get() {
    try { return Boolean(localStorage.getItem(SEEN)); } catch { return false; }
  },
  set() {
    try { localStorage.setItem(SEEN, "1"); } catch { /* then they are offered again */ }
  },
};

function cards(model) {
  const [bold, plain, wide] = model.get("offer");
  const tell = ({ name, title, words }) => make("li", {},
    button(make("span", {}, make("b", {}, title), words), "ex-story", () => press(model, ["tell", name])));
  const list = make("ul", { class: "ex-story-cards" }, ...model.get("cards").map(tell));
  const unfold = button("New here? Take a tour", "ex-link ex-unfold", () => {
    const open = box.classList.toggle("ex-unfolded");
    unfold.setAttribute("aria-expanded", String(open));
  }, { "aria-expanded": "false" });
  const close = button("Close", "ex-link", () => press(model, ["cards", false]));
  const box = make("section", { class: "ex-stories-offer", "aria-label": "Stories" },
    make("p", {}, make("b", {}, bold), plain, make("span", { class: "ex-wide" }, wide)),
    unfold, close, list);
  return box;
}

/** The answers to choose from; what is chosen waits for Reveal. */
function choices(model, options, labelledby) {
  const name = `${labelledby}-choice`;
  const reveal = button("Reveal", "ex-button ex-primary", () => {
    const chosen = form.querySelector("input:checked");
    if (chosen) press(model, ["reveal", Number(chosen.value)]);
  }, { disabled: "true" });
  const rows = options.map((words, index) => make("label", {},
    make("input", { type: "radio", name, value: String(index), ...OWN_KEYS, onchange: () => { reveal.disabled = false; } }), words));
  const skip = button("Skip", "ex-link", () => press(model, ["skip"]), { title: "Reveal without an answer" });
  const form = make("div", { class: "ex-choices" }, make("div", { class: "ex-options", role: "radiogroup", "aria-labelledby": labelledby }, ...rows),
    make("div", { class: "ex-options" }, reveal, skip));
  return form;
}

function strip(model, root) {
  const [title, words, question, said] = ["h2", "p", "p", "p"].map((tag) => make(tag, {}));
  said.setAttribute("role", "status");
  words.setAttribute("aria-live", "polite");
  question.className = "ex-question";
  question.id = `ex-question-${questions += 1}`;
  let follows = false; // whether the page scrolls: until somebody does
  const show = () => {
    const target = root()?.querySelector(".ex-cell.ex-looked, .ex-main.ex-looked > .ex-verdict");
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    target?.scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "nearest" });
    return target;
  };
  const keep = () => follows && show();
  const look = button("", "ex-link ex-look", () => {
    const target = show();
    const point = target?.querySelector(".ex-guess-point input") ?? target?.querySelector("button");
    point?.focus({ preventScroll: true });
  });
  const back = button("Back", "ex-button", () => press(model, ["back"]));
  const next = button("Next", "ex-button ex-primary", () => press(model, [model.get("told").number < model.get("told").count ? "next" : "leave"]));
  const leave = button("Leave", "ex-link", () => press(model, ["leave"]), { title: "Ends the story; the page stays as it is" });
  const asked = make("div", {});
  const bar = make("div", { class: "ex-story-bar" }, look, back, next, leave);
  const box = make("section", { class: "ex-told", "aria-label": "Story" }, make("div", { class: "ex-told-words" }, title, words, question, asked, said), bar);
  let step = "", news = "";
  const paint = () => {
    const told = model.get("told");
    box.hidden = !told.title;
    if (!told.title) { step = news = ""; follows = false; return; }
    title.textContent = `${told.title} · ${told.number} of ${told.count}`;
    if (words.textContent !== told.words) write(words, told.words);
    question.hidden = !told.text;
    write(question, told.options.length ? told.text : `${told.text} Draw it on the chart.`);
    write(said, told.said);
    said.hidden = !told.said;
    look.textContent = `Look at: ${told.look}`;
    look.hidden = !told.look;
    back.disabled = told.number === 1;
    next.textContent = told.number < told.count ? "Next" : "Done";
    const now = `${told.title} ${told.number}`;
    const stands = told.text && told.open !== false;
    if (now !== step) asked.replaceChildren(...(told.options.length ? [choices(model, told.options, question.id)] : []));
    asked.hidden = !stands;
    next.classList.toggle("ex-primary", !stands); // to answer is what comes next
    step = now;
    const newest = `${now} ${told.look} ${told.said}`;
    if (newest !== news) follows = true;
    news = newest;
    keep();
  };
  return { box, paint, keep, rest: () => { follows = false; } };
}

export default {
  render({ model, el }) {
    become(el, "ex-stories");
    if (!model.get("cards").length) return undefined;
    const root = () => el.closest(".ex-root");
    const offer = cards(model);
    const told = strip(model, root);
    let not = offered.get() || (hasAddress() && Boolean(location.search)); // before the kernel knows
    if (not) model.send(["cards", false]);
    el.append(offer, told.box);
    let page = null;
    const sized = new ResizeObserver(() => { // a panel that opens, a verdict that comes
      root().style.setProperty("--ex-told", `${told.box.offsetHeight}px`);
      if (page !== (page = root())) {
        sized.observe(page);
        for (const act of ["wheel", "touchmove", "keydown", "pointerdown"]) page.addEventListener(act, told.rest, { passive: true });
      }
      told.keep();
    });
    sized.observe(told.box);
    let before = model.get("shown");
    const ends = [follow(model, "told", told.paint), follow(model, "shown told", () => {
      const shown = model.get("shown");
      if (!shown) not = false;
      offer.hidden = !shown || not;
      if (!offer.hidden) offered.set();
      if (shown && !before && !offer.hidden) {
        offer.classList.add("ex-unfolded");
        offer.querySelector(".ex-story").focus();
      }
      before = shown;
    })];
    return () => {
      sized.disconnect();
      ends.forEach((end) => end());
    };
  },
};
