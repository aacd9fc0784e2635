/* A text of the page, as HTML. */

export default {
  render({ model, el }) {
    const text = make("div", { class: "ex-html" });
    el.append(text);
    return follow(model, "value", () => { text.innerHTML = model.get("value"); });
  },
};
