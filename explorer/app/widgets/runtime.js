/* The last part of the script: opens pages. A page whose own script came before this one waits for it. */

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
    const pages = (globalThis[Symbol.for("transformer-signal-explorer")] ??= {});
    (pages[model.get("key")] ??= Promise.withResolvers()).resolve((pageModel) => {
      requestMissedState(pageModel);
      return openPage(pageModel);
    });
  },
};
