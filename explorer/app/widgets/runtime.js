/* The end of the page's script: hands the views to the stubs of all widgets, however early these came. */

export default {
  initialize({ model }) {
    packed.model = model;
    learn(model.get("glossary"));
    listenToTerms();
    const pages = (globalThis[Symbol.for("transformer-signal-explorer")] ??= {});
    (pages[model.get("key")] ??= Promise.withResolvers()).resolve(views);
  },
};
