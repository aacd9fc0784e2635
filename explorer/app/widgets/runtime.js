/* The last part of the script: opens pages. A page whose own script came before this one waits for it. */

/** Disconnects the widgets from a kernel that was restarted automatically, because the new kernel does not know the
    page. JupyterLab itself disconnects them only after a restart that a person requested. */
function disconnectAtRestart(manager) {
  manager.kernel?.statusChanged.connect((_, status) => status === "autorestarting" && manager.disconnect());
}

export default {
  initialize({ model }) {
    disconnectAtRestart(model.widget_manager);
    plotlySource.model = model;
    loadGlossary(model.get("glossary"));
    listenToGlossary();
    const pages = (globalThis[Symbol.for("transformer-signal-explorer")] ??= {});
    (pages[model.get("key")] ??= Promise.withResolvers()).resolve(openPage);
  },
};
