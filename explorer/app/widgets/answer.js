/* The box in which a visitor of a served lesson answers an exercise: `lessons/answers.py` reads it.

   What is said of an answer stands in a live region, so that a screen reader says it while the entry keeps the focus. */

export function answer(model, el) {
  const name = `ex-answer-${model.number}`;
  const words = model.get("words");
  const entry = make("input", {
    id: name, class: "ex-entry", type: "text", autocomplete: "off", autocapitalize: "off", spellcheck: "false",
    maxlength: model.get("longest"), placeholder: words.example, "aria-describedby": `${name}-said`,
    ...OWN_KEYS,
  });
  const sentence = make("p", { id: `${name}-said`, class: "ex-answer-said", role: "status", "aria-live": "polite" });
  const ask = (verb, ...values) => {
    setText(sentence, words.sent);
    model.act([verb, ...values], paint);
  };
  const check = make("button", { type: "submit", class: "ex-button ex-primary" }, words.check);
  const form = make("form", { class: "ex-answer-row", onsubmit: (event) => {
    event.preventDefault();
    ask("check", entry.value);
  } }, entry, check, button(words.hint, "ex-button", () => ask("hint")),
  button(words.solution, "ex-button", () => ask("solution")));
  const label = make("label", { for: name }, make("b", {}, words.label),
    ` · ${model.get("takes")}`);
  function paint() {
    const { silence } = model.page;
    const isWaiting = silence > 0;
    el.classList.toggle("ex-right", model.get("right") && !isWaiting);
    setText(sentence, isWaiting ? runningText() || (silence > 1 ? words.gone : words.sent) : model.get("said"));
  }
  become(el, "ex-answer");
  el.append(label, form, sentence);
  model.page.listeners.add(paint);
  const stop = follow(model, "said right", paint);
  return callAll([() => model.page.listeners.delete(paint), stop]);
}
