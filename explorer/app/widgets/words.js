/* A text of the page, as HTML that Python has made: nothing of a visitor's is in it that is not escaped there. */

export default {
  render({ model, el }) {
    const text = make("div", { class: "ex-html" });
    el.append(text);
    return follow(model, "value", () => {
      text.replaceChildren(...new DOMParser().parseFromString(model.get("value"), "text/html").body.childNodes);
    });
  },
};
