/* plotly.js, asked for while Python starts, and two messages that Voilà lacks: the page is still starting; its kernel is
   gone. */
(() => {
  const { plotly } = document.currentScript.dataset;
  if (plotly) globalThis[Symbol.for("transformer-signal-explorer: plotly")] = copyOf(plotly);

  /** What the script defines, or null: then the kernel sends it. Somebody else's copy stays theirs. */
  async function copyOf(script) {
    const before = window.Plotly;
    try {
      await import(script);
      return window.Plotly;
    } catch {
      return null;
    } finally {
      window.Plotly = before;
    }
  }

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
  // The page, or whatever went wrong; a still comes beside the page, and before it.
  const shown = ".ex-root, .jp-RenderedText, .jp-RenderedHTMLCommon:not(:has(.ex-still))";
  const first = document.getElementById("ex-first"); // a picture of the default design, which lies on top of the page
  const linked = location.search.length > 1 || location.hash.length > 1; // the page will show another design
  if (first && linked) {
    document.body.prepend(loading);
    first.remove();
  }
  const PATIENCE = 8000; // milliseconds for which the picture may cover a page that draws nothing
  const drawn = () => [...document.querySelectorAll(".ex-root .ex-chart-plot")].some(({ dataset }) => Number(dataset.drawn))
    && [".ex-finding", ".ex-stories"].every((part) => document.querySelector(`.ex-root ${part}`)); // which move the charts
  const uncover = () => [first, loading].forEach((node) => node?.remove());
  let since = 0;
  const watch = new MutationObserver(() => {
    const page = document.querySelector(shown);
    if (!page) return;
    if (!first?.isConnected || !page.matches(".ex-root") || drawn()) {
      uncover();
      watch.disconnect();
    } else since ||= setTimeout(uncover, PATIENCE);
  });
  watch.observe(document.body, { childList: true, subtree: true, attributeFilter: ["data-drawn"] });

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
