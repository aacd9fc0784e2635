/* The end of the page's script: draws for the stubs of all widgets, however early these came, and hands new states of
   several models, which come as one message, to each. */

/** anywidget gives up on a model whose script is not there within two seconds, as where the machine is slow or busy: it
    draws it, but refuses whatever the kernel sends it, also what came before. Such a model listens here from then on,
    and asks for its whole state, when it is drawn. */
function hear(proxy) {
  const model = proxy.set({}); // Backbone's `set` returns the model, which anywidget keeps to itself
  model._handle_comm_msg({ content: { data: {} } }).catch(() => {
    const { _handle_comm_msg: handle } = Object.getPrototypeOf(model.constructor.prototype);
    model.comm?.on_msg((message) => handle.call(model, message));
    model.comm?.send({ method: "request_state" }, {}); // a page that was saved as HTML has no comm
  });
}

function draw(name, view) {
  hear(view.model);
  return views[name].render(view);
}

/** Each after what came before it for that model; one that this page does not have is another page's. */
function spread(manager, states) {
  for (const [id, state] of Object.entries(states)) {
    manager.get_model(id).then((model) => {
      model.state_change = Promise.resolve(model.state_change).then(() => model.set_state(state));
    }, () => {});
  }
}

/** A kernel that was started again knows nothing of the page. JupyterLab tells the widgets only if a person asked for it. */
function hearOfRestarts(manager) {
  manager.kernel?.statusChanged.connect((_, status) => status === "autorestarting" && manager.disconnect());
}

export default {
  initialize({ model }) {
    hear(model);
    hearOfRestarts(model.widget_manager);
    packed.model = model;
    learn(model.get("glossary"));
    listenToTerms();
    model.on("msg:custom", ({ states }) => states && spread(model.widget_manager, states));
    const pages = (globalThis[Symbol.for("transformer-signal-explorer")] ??= {});
    (pages[model.get("key")] ??= Promise.withResolvers()).resolve(draw);
  },
};
