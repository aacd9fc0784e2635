/* Two messages that Voilà lacks: the page is still starting; its kernel is gone. */
(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const follow = () => {
    document.body.dataset.jpThemeLight = String(!dark.matches); // as JupyterLab does, for widgets that look there
  };
  dark.addEventListener("change", follow);
  follow();

  // Voilà says goodbye, and lets go of the kernel, before the page is left: while a person may still decide to stay.
  const add = window.addEventListener.bind(window);
  window.addEventListener = (type, listener, ...options) => {
    const early = type === "beforeunload" && String(listener).includes("api/shutdown");
    add(early ? "pagehide" : type, listener, ...options);
  };
  add("pageshow", (event) => {
    if (event.persisted) location.reload(); // brought back from the browser's memory, without its kernel
  });

  const loading = document.getElementById("loading");
  window.voila_process = () => {
    loading.textContent = "Loading the page…";
  };
  window.voila_finish = () => {}; // cells are shown as they come: an empty page is no better than a partial one
  const shown = ".ex-root, .jp-RenderedText, .jp-RenderedHTMLCommon"; // the page, or whatever went wrong
  const watch = new MutationObserver(() => {
    if (document.querySelector(shown)) {
      loading.remove();
      watch.disconnect();
    }
  });
  watch.observe(document.body, { childList: true, subtree: true });

  const notice = document.getElementById("ex-notice");
  let pending;
  function say(text, delay = 0) {
    clearTimeout(pending);
    pending = setTimeout(() => {
      notice.hidden = !text;
      notice.querySelector("span").textContent = text;
    }, delay);
  }
  const GONE = "The Python process of this page has ended, so its controls do nothing.";
  const LOST = "The connection to the server is lost; trying again.";

  function listen(kernel) {
    let gone = false;
    kernel.statusChanged.connect((_, status) => {
      if (["dead", "autorestarting", "restarting"].includes(status)) {
        gone = true; // a restarted kernel knows nothing of this page
        say(GONE);
      }
    });
    kernel.connectionStatusChanged.connect((_, status) => {
      if (!gone) say({ connecting: LOST, disconnected: GONE }[status] ?? "", status === "connecting" ? 3000 : 0);
    });
  }

  const app = setInterval(async () => {
    if (!window.jupyterapp) return; // Voilà's front end, once it has started
    clearInterval(app);
    listen((await window.jupyterapp.widgetManagerPromise.promise).kernel);
  }, 200);
})();
