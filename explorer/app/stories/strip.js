/* Stories, below the header: cards that offer them, and the step of the open story. */

let questionCount = 0; // for ids

/** Sends the acts of buttons one by one. Until the kernel has answered, the button shows as pressed, the verdict of the
    page before is blank, and clicks on any of these buttons are not sent. */
function actsOneByOne(model, root) {
  let waiting = null; // the act without an answer
  const release = () => {
    if (!waiting) return;
    waiting.pressed.removeAttribute("aria-busy");
    root().removeAttribute("data-turning");
    waiting = null;
  };
  const act = (pressed, content) => {
    if (waiting) return;
    const sent = waiting = { pressed };
    pressed.setAttribute("aria-busy", "true");
    root().setAttribute("data-turning", "");
    model.act(content, () => waiting === sent && release());
  };
  return { act, end: follow(model, "step", release) }; // another step is an answer, and comes first
}

/** The cards of the stories. */
function storyCards(model, act) {
  const card = ({ name, title, words }) => make("li", {},
    button(make("span", {}, make("b", {}, title), words), "ex-story", ({ currentTarget }) => act(currentTarget, ["tell", name])));
  return make("section", { class: "ex-stories-offer", "aria-label": "Stories" },
    make("ul", { class: "ex-story-cards" }, ...model.get("cards").map(card)));
}

/** The answers of a question as radio buttons. The chosen answer is sent by Reveal. */
function answerForm(act, options, labelledby) {
  const reveal = button("Reveal", "ex-button ex-primary", () => {
    const chosen = form.querySelector("input:checked");
    if (chosen) act(reveal, ["reveal", Number(chosen.value)]);
  }, { disabled: "true" });
  const rows = options.map((words, index) => make("label", {}, make("input", {
    type: "radio", name: `${labelledby}-choice`, value: String(index), ...OWN_KEYS,
    onchange: () => { reveal.disabled = false; },
  }), words));
  const skip = button("Skip", "ex-link", () => act(skip, ["skip"]), { title: "Reveal without an answer" });
  const form = make("div", { class: "ex-choices" },
    make("div", { class: "ex-options", role: "radiogroup", "aria-labelledby": labelledby }, ...rows),
    make("div", { class: "ex-options" }, reveal, skip));
  return form;
}

/** The current step of the open story: its words, its question with the result, and the buttons that move on. */
class StoryStep {
  constructor(model, root, act) {
    this.model = model;
    this.root = root;
    this.act = act;
    this.scrolls = false; // whether the page scrolls to the part that the step speaks of, until a person scrolls
    this.paintedStep = this.paintedNews = "";
    this.title = make("h2");
    this.words = make("p", { "aria-live": "polite" });
    this.question = make("p", { class: "ex-question", id: `ex-question-${questionCount += 1}` });
    this.answers = make("div");
    this.result = make("p", { role: "status" });
    this.look = button("", "ex-link ex-look", () => {
      const target = this.scrollToTarget();
      const point = target?.querySelector(".ex-guess-point input") ?? target?.querySelector("button");
      point?.focus({ preventScroll: true });
    });
    this.back = button("Back", "ex-button", () => act(this.back, ["back"]));
    this.next = button("Next", "ex-button ex-primary", () => {
      const { number, count } = model.get("step");
      act(this.next, [number < count ? "next" : "leave"]);
    });
    const leave = button("Leave", "ex-link", () => model.act(["leave"]), {
      title: "Ends the story; the page stays as it is",
    });
    this.box = make("section", { class: "ex-told", "aria-label": "Story" },
      make("div", { class: "ex-told-words" }, this.title, this.words, this.question, this.answers, this.result),
      make("div", { class: "ex-story-bar" }, this.look, this.back, this.next, leave));
  }

  /** Scrolls to the part of the page that the step speaks of, and returns it. */
  scrollToTarget() {
    const target = this.root()?.querySelector(".ex-cell.ex-looked, .ex-looked > .ex-verdict");
    bringIntoView(target);
    return target;
  }

  paint() {
    const { title, number, count, words, look, text, options, said: result, open } = this.model.get("step");
    this.box.hidden = !title;
    const step = title ? `${title} ${number}` : "";
    const news = title ? `${step} ${look} ${result}` : "";
    if (news !== this.paintedNews) this.scrolls = Boolean(title);
    if (title) {
      this.title.textContent = `${title} · ${number} of ${count}`;
      write(this.words, words);
      this.question.hidden = !text;
      write(this.question, options.length ? text : `${text} Draw it on the chart.`);
      write(this.result, result);
      this.result.hidden = !result;
      this.look.textContent = `Look at: ${look}`;
      this.look.hidden = !look;
      this.back.disabled = number === 1;
      this.next.textContent = number < count ? "Next" : "Done";
      const form = () => (options.length ? [answerForm(this.act, options, this.question.id)] : []);
      if (step !== this.paintedStep) this.answers.replaceChildren(...form());
      const isAsking = text && open !== false;
      this.answers.hidden = !isAsking;
      this.next.classList.toggle("ex-primary", !isAsking); // while a question is open, Reveal is the primary button
      if (this.scrolls) this.scrollToTarget();
    }
    Object.assign(this, { paintedStep: step, paintedNews: news });
  }
}

/** Shows the cards to a person who asks for them. Returns a function that stops. */
function followCards(model, cards) {
  return follow(model, "shown", () => {
    const isShown = model.get("shown"), isNew = isShown && cards.hidden;
    cards.hidden = !isShown;
    if (isNew) cards.querySelector(".ex-story").focus();
  });
}

/** Follows the height of the step, which the style sheet needs, and of the page. Returns a function that stops. */
function followSizes(step) {
  let page = null;
  const resizes = new ResizeObserver(() => {
    step.root().style.setProperty("--ex-told", `${step.box.offsetHeight}px`);
    if (page !== step.root()) {
      page = step.root();
      resizes.observe(page);
      listen(page, "wheel touchmove keydown pointerdown", () => { step.scrolls = false; }, { passive: true });
    }
    if (step.scrolls) step.scrollToTarget(); // the layout changed, for example because a panel has opened
  });
  resizes.observe(step.box);
  return () => resizes.disconnect();
}

export function strip(model, el) {
  become(el, "ex-stories");
  if (!model.get("cards").length) return () => {};
  const root = () => el.closest(".ex-root");
  const { act, end } = actsOneByOne(model, root);
  const cards = storyCards(model, act);
  cards.hidden = true;
  const step = new StoryStep(model, root, act);
  el.append(cards, step.box);
  return callAll([end, followSizes(step), follow(model, "step", () => step.paint()), followCards(model, cards)]);
}
