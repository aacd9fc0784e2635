/* The last part of the page's script: draws the views of all widgets, and distributes the states that the kernel
   sends of several models in one message. A widget whose script came before this one waits for it. */

/** Repairs a model whose script came late.

    anywidget gives up on a model whose script is not there within two seconds, for example on a slow machine: it
    draws the model, but refuses every state from the kernel, earlier ones included. When such a model is drawn, it
    subscribes to its messages itself and requests its whole state.

    This is the only place that reads a private part: anywidget refuses custom messages to such a model as well, so
    that no public call tells it anything, and any script may be late while the browser's thread is busy. */
function requestMissedState(proxy) {
  const model = proxy.set({}); // Backbone's `set` returns the model, which anywidget hides behind a proxy
  model._handle_comm_msg({ content: { data: {} } }).catch(() => {
    const { _handle_comm_msg: handle } = Object.getPrototypeOf(model.constructor.prototype);
    model.comm?.on_msg((message) => handle.call(model, message));
    model.comm?.send({ method: "request_state" }, {}); // a page that was saved as HTML has no comm
  });
}

function draw(name, view) {
  requestMissedState(view.model);
  return views[name].render(view);
}

/** Gives each model its state, after the earlier states of that model. Models of other pages are unknown here. */
function distribute(manager, states) {
  for (const [id, state] of Object.entries(states)) {
    manager.get_model(id).then((model) => {
      model.state_change = Promise.resolve(model.state_change).then(() => model.set_state(state));
    }, () => {});
  }
}

/** Disconnects the widgets from a kernel that was restarted automatically, because the new kernel does not know the
    page. JupyterLab itself disconnects them only after a restart that a person requested. */
function disconnectAtRestart(manager) {
  manager.kernel?.statusChanged.connect((_, status) => status === "autorestarting" && manager.disconnect());
}

export default {
  initialize({ model }) {
    requestMissedState(model);
    disconnectAtRestart(model.widget_manager);
    plotlySource.model = model;
    loadGlossary(model.get("glossary"));
    listenToGlossary();
    model.on("msg:custom", ({ states }) => states && distribute(model.widget_manager, states));
    const pages = (globalThis[Symbol.for("transformer-signal-explorer")] ??= {});
    (pages[model.get("key")] ??= Promise.withResolvers()).resolve(draw);
  },
};
