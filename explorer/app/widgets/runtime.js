/* The end of the page's script: hands the views to the stubs of all widgets, however early these came, and new states
   of several models, which come as one message, to each. */

/** Each after what came before it for that model; one that this page does not have is another page's. */
function spread(manager, states) {
  for (const [id, state] of Object.entries(states)) {
    manager.get_model(id).then((model) => {
      model.state_change = Promise.resolve(model.state_change).then(() => model.set_state(state));
    }, () => {});
  }
}

export default {
  initialize({ model }) {
    packed.model = model;
    learn(model.get("glossary"));
    listenToTerms();
    model.on("msg:custom", ({ states }) => states && spread(model.widget_manager, states));
    const pages = (globalThis[Symbol.for("transformer-signal-explorer")] ??= {});
    (pages[model.get("key")] ??= Promise.withResolvers()).resolve(views);
  },
};
