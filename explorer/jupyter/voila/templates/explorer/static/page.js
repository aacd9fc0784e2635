/* The first script of a page in Voilà.

   It requests plotly.js while Python starts, covers the page with a picture until its charts are drawn, and shows two
   messages that Voilà lacks: the page is loading, and its kernel has ended. */
"use strict"; // keeps the functions below within the block
{
  const { plotly } = document.currentScript.dataset;
  if (plotly) globalThis[Symbol.for("transformer-signal-explorer: plotly")] = importPlotly(plotly);

  /** Runs the script. Resolves to its `Plotly`, or to null where the kernel must send it. Restores `window.Plotly`. */
  async function importPlotly(url) {
    const other = window.Plotly;
    try {
      await import(url);
      return window.Plotly;
    } catch {
      return null;
    } finally {
      window.Plotly = other;
    }
  }

  // Widgets read the color scheme from the attribute that JupyterLab sets.
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const setTheme = () => { document.body.dataset.jpThemeLight = String(!dark.matches); };
  dark.addEventListener("change", setTheme);
  setTheme();

  // Voilà ends the kernel at `beforeunload`, when a person may still decide to stay. This moves that to `pagehide`.
  const addListener = window.addEventListener.bind(window);
  window.addEventListener = (type, listener, ...options) => {
    const endsKernel = type === "beforeunload" && String(listener).includes("api/shutdown");
    addListener(endsKernel ? "pagehide" : type, listener, ...options);
  };
  addListener("pageshow", (event) => {
    if (event.persisted) location.reload(); // the browser restored a page whose kernel has ended
  });

  const loading = document.getElementById("loading");
  window.voila_process = () => { loading.textContent = "Loading the page…"; };
  // The page or an error; a still picture may stand before the page and does not count.
  const OUTPUT = ".ex-root, .jp-RenderedText, .jp-RenderedHTMLCommon:not(:has(.ex-still))";
  const COVER_LIMIT = 8000; // milliseconds for which the picture may cover a page that draws nothing
  const cover = document.getElementById("ex-first"); // a picture of the default design on top of the page
  const isLinked = location.search.length > 1 || location.hash.length > 1; // the page will show another design
  if (cover && isLinked) {
    document.body.prepend(loading);
    cover.remove();
  }
  const isDrawn = () => {
    const plots = [...document.querySelectorAll(".ex-root .ex-chart-plot")];
    // The finding and the stories move the charts when they appear.
    return plots.some(({ dataset }) => Number(dataset.drawn))
      && [".ex-finding", ".ex-stories"].every((part) => document.querySelector(`.ex-root ${part}`));
  };
  const uncover = () => [cover, loading].forEach((node) => node?.remove());
  let timer = 0;
  const observer = new MutationObserver(() => {
    const output = document.querySelector(OUTPUT);
    if (!output) return;
    if (!cover?.isConnected || !output.matches(".ex-root") || isDrawn()) {
      uncover();
      observer.disconnect();
    } else timer ||= setTimeout(uncover, COVER_LIMIT);
  });
  observer.observe(document.body, { childList: true, subtree: true, attributeFilter: ["data-drawn"] });

  const ENDED = "The Python process of this page has ended, so its controls do nothing.";
  const DISCONNECTED = "The connection to the server is lost; trying again.";
  const notice = document.getElementById("ex-notice");
  let noticeTimer;
  function showNotice(text, delay = 0) {
    clearTimeout(noticeTimer);
    noticeTimer = setTimeout(() => {
      notice.hidden = !text;
      notice.querySelector("span").textContent = text;
    }, delay);
  }

  function watchKernel(kernel) {
    let hasEnded = false;
    let reason = "";
    kernel.anyMessage.connect((_, { msg }) => { reason = msg.content.reason || reason; }); // of the server's last one
    kernel.statusChanged.connect((_, status) => {
      if (["dead", "autorestarting", "restarting"].includes(status)) {
        hasEnded = true; // a restarted kernel does not know this page
        showNotice(`${reason} ${ENDED}`.trim());
      }
    });
    kernel.connectionStatusChanged.connect((_, status) => {
      const text = { connecting: DISCONNECTED, disconnected: ENDED }[status] ?? "";
      if (!hasEnded) showNotice(text, status === "connecting" ? 3000 : 0);
    });
  }

  const poll = setInterval(async () => {
    if (!window.jupyterapp) return; // Voilà's front end has not started yet
    clearInterval(poll);
    watchKernel((await window.jupyterapp.widgetManagerPromise.promise).kernel);
  }, 200);
}
