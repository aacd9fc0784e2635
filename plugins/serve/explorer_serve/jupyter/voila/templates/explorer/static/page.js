/* The first script of a page in Voilà.

   It requests plotly.js while Python starts, covers the page with a picture until its charts are drawn, and shows two
   messages that Voilà lacks: the page is loading, and its kernel has ended. A page whose controls do not come is loaded
   again, once, and then says why they do not. Before an idle page ends it asks whether anybody is there. */
"use strict"; // keeps the functions below within the block
{
  const { plotly, kernels, whole, ...limits } = document.currentScript.dataset;
  const [idle, warning] = [Number(limits.idle), Number(limits.warning)]; // seconds
  if (plotly) globalThis[Symbol.for("transformer-signal-explorer: plotly")] = importPlotly(plotly);

  /** Runs the script. Resolves to its `Plotly`, or to null where the kernel must send it. Restores `window.Plotly`. */
  async function importPlotly(url) {
    const other = window["Plotly"];
    try {
      await import(url);
      return window["Plotly"];
    } catch {
      return null;
    } finally {
      window["Plotly"] = other;
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

  /** The kernel's id; nothing before the page's configuration has come, which may come in parts. */
  function kernelOfPage() {
    const config = document.getElementById("jupyter-config-data"); // comes with the kernel
    const isWhole = config && (config.nextSibling || document.readyState !== "loading");
    return isWhole ? JSON.parse(config.textContent).kernelId : undefined;
  }

  const loading = document.getElementById("loading");
  window["voila_process"] = () => { loading.textContent = "Loading the page…"; };
  const OUTPUT = ".ex-root, .jp-RenderedText, .jp-RenderedHTMLCommon"; // the page or an error
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
    return plots.some((plot) => Number(plot.getAttribute("data-drawn")))
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

  /** Notes which cell of a lesson runs, for the line at its top, and for parts that wait for an answer of the kernel.

      Voilà's front end puts a placeholder into each cell, and takes it out once the cell has run. */
  const PLACEHOLDER = ".voila-skeleton-container";
  function noteRunning() {
    const line = document.getElementById("ex-running"); // only lessons have it
    if (!line) return;
    const cells = [...document.querySelectorAll("[cell-index]:has(.jp-CodeCell)")];
    const place = cells.findIndex((cell) => cell.querySelector(PLACEHOLDER));
    const text = place < 0 ? "" : `cell ${place + 1} of ${cells.length}`;
    if (text === (document.documentElement.dataset.running ?? "")) return;
    document.documentElement.dataset.running = text;
    line.hidden = !text;
    line.querySelector("span").textContent = `Running ${text}`;
    Object.assign(line.querySelector("progress"), { max: cells.length, value: Math.max(place, 0) });
  }
  new MutationObserver(noteRunning).observe(document.body, { childList: true, subtree: true });

  /** Cells that train wait, with what is stored of them, until a visitor presses one of their buttons. It has all of them
      run, over the connection on which the page got the others. Meanwhile each has the placeholder of a cell that runs. */
  function watchCells(socket) {
    let isTraining = false;
    const cellOf = (line) => line.closest("[cell-index]");
    const lines = () => [...document.querySelectorAll(".ex-train")];
    const buttons = () => lines().flatMap((line) => [...line.querySelectorAll("button")]);
    function train({ target }) {
      socket.send(JSON.stringify({ action: "train", payload: { kernel_id: kernelOfPage() } }));
      isTraining = true;
      const pressed = target.parentElement;
      for (const line of lines()) {
        const placeholder = document.createElement("div");
        placeholder.className = PLACEHOLDER.slice(1);
        cellOf(line).querySelectorAll(".jp-Cell-outputWrapper").forEach((output) => output.remove());
        cellOf(line).append(placeholder);
        line.textContent = line.dataset.training;
      }
      pressed.focus(); // its button had the focus
    }
    socket.addEventListener("message", ({ data }) => {
      const { action, payload } = JSON.parse(data);
      const place = action === "execution_result" && payload.cell_index + 1; // the page counts from 1
      const line = lines().find((other) => cellOf(other).getAttribute("cell-index") === String(place));
      if (line && isTraining) line.textContent = line.dataset.trained;
      for (const button of line?.querySelectorAll("button") ?? []) Object.assign(button, { hidden: false, onclick: train });
    });
    socket.addEventListener("close", () => buttons().forEach((button) => button.remove()));
  }

  const ENDED = "The Python process of this page has ended, so its controls do nothing.";
  const DISCONNECTED = "The connection to the server is lost; trying again.";
  const notice = document.getElementById("ex-notice");
  let noticeTimer;
  const reload = () => {
    remember(false); // it may be loaded once more by itself
    location.reload();
  };
  function showNotice(text, { delay = 0, label = "Reload", act = reload } = {}) {
    clearTimeout(noticeTimer);
    noticeTimer = setTimeout(() => {
      const button = notice.querySelector("button");
      notice.hidden = !text;
      notice.classList.toggle("ex-question", label !== "Reload");
      notice.querySelector("span").textContent = text;
      button.textContent = label;
      button.onclick = act;
    }, delay);
  }

  const TRIED = "transformer-signal-explorer: this page was loaded again";
  const SECONDS = { drawing: 8, socket: 15, script: 30, widget: 60 }; // after the page has loaded
  const MISSING = {
    cut: "The page did not load to its end.",
    script: "A script of this page did not load.",
    socket: "This page could not open a WebSocket to its server. A proxy in between may not pass WebSockets on.",
    silent: "The Python process of this page does not answer.",
    drawing: "The controls of this page could not be drawn.",
    widget: `The controls of this page did not come within ${SECONDS.widget} s.`,
  };
  let hasSocket = false; // the kernel's was open once
  let isRefused = false; // it was closed before that
  let isScriptLost = false;
  let loadedAt = Infinity;
  let brokenFor = 0; // seconds; the server may know the cause by then, that Python has ended
  addListener("load", () => { loadedAt = Date.now(); });
  addListener("error", ({ target }) => {
    if (target instanceof HTMLScriptElement && target.src.endsWith("/voila.js")) isScriptLost = true;
  }, true);
  window.WebSocket = class extends WebSocket {
    constructor(url, protocols) {
      super(url, protocols);
      if (String(url).includes("/voila/execution/")) watchCells(this);
      if (!String(url).includes("/channels")) return;
      this.addEventListener("open", () => { hasSocket = true; });
      this.addEventListener("close", () => { isRefused = !hasSocket; });
    }
  };

  /** Whether the page is there: of a lesson the text is, and its figures come one by one. */
  const hasCome = () => (whole ? Boolean(document.querySelector(".ex-root")) : hasSocket);

  /** Why the controls have not come; nothing while there is time. */
  function missing() {
    const cells = document.getElementById("rendered_cells");
    const seconds = (Date.now() - loadedAt) / 1000;
    const isText = whole && !hasCome() && cells?.querySelector(".jp-RenderedText, .jp-RenderedHTMLCommon");
    brokenFor = isText || cells?.textContent.includes("Error displaying widget") ? brokenFor + 1 : 0;
    if (brokenFor > SECONDS.drawing) return MISSING.drawing;
    if (hasCome() || brokenFor) return "";
    if (isScriptLost) return MISSING.script;
    if (seconds > 1 && !document.querySelector("[data-end]")) return MISSING.cut;
    if (seconds > SECONDS.socket && isRefused && !hasSocket) return MISSING.socket;
    if (seconds > SECONDS.script && !window["jupyterapp"]) return MISSING.script;
    if (seconds > SECONDS.script && !hasSocket) return MISSING.silent;
    return seconds > SECONDS.widget ? MISSING.widget : "";
  }

  /** Notes whether this page was loaded again by itself. Returns whether the note changed: a browser may keep none. */
  function remember(wasTried) {
    try {
      const before = sessionStorage.getItem(TRIED);
      sessionStorage.setItem(TRIED, wasTried ? "yes" : "");
      return (before === "yes") !== wasTried;
    } catch {
      return false;
    }
  }

  /** Loads a page again whose controls have not come; says why they do not where that was tried. */
  function giveUp(text) {
    hasEnded = true;
    if (!hasCome() && remember(true)) {
      location.reload();
      return;
    }
    uncover();
    showNotice(text);
  }

  const arrival = setInterval(() => {
    const text = hasEnded ? "" : missing();
    if (text) giveUp(text);
    if (hasEnded || (whole && hasCome())) clearInterval(arrival);
    if (!hasEnded && hasCome()) remember(false);
  }, 1000);

  /** Asks before the server ends this page, which nothing was sent to or from for `idle` seconds. */
  function watchVisitor(kernel) {
    let used = Date.now();
    let isAsking = false;
    kernel.anyMessage.connect((_, { msg }) => {
      if (!(msg.parent_header.msg_type ?? msg.header.msg_type).startsWith("kernel_info")) used = Date.now();
    });
    const silence = () => (Date.now() - used) / 1000;
    const stay = () => {
      if (hasEnded || silence() < Math.min(warning, 10)) return;
      used = Date.now();
      kernel.createComm("explorer.stay").open(); // changes nothing, and the server counts it as a use
    };
    for (const type of ["pointerdown", "keydown", "wheel"]) addListener(type, stay, { capture: true, passive: true });
    setInterval(() => {
      const left = Math.max(0, Math.ceil(idle - silence()));
      const isIdle = !hasEnded && left <= warning;
      if (isIdle) showNotice(`Still there? This page ends in ${left} s.`, { label: "Stay", act: stay });
      else if (isAsking && !hasEnded) showNotice("");
      isAsking = isIdle;
    }, 500);
  }

  let hasEnded = false;
  let isConnected = false;
  function watchKernel(kernel) {
    let reason = "";
    kernel.anyMessage.connect((_, { msg }) => { reason = msg.content.reason || reason; }); // of the server's last one
    kernel.statusChanged.connect((_, status) => {
      if (["dead", "autorestarting", "restarting"].includes(status)) {
        giveUp(`${reason} ${ENDED}`.trim()); // a restarted kernel does not know this page
      }
    });
    isConnected = kernel.connectionStatus === "connected";
    kernel.connectionStatusChanged.connect((_, status) => {
      isConnected = status === "connected";
      const text = { connecting: DISCONNECTED, disconnected: ENDED }[status] ?? "";
      if (!hasEnded && hasSocket) showNotice(text, { delay: status === "connecting" ? 3000 : 0 });
    });
    if (idle) watchVisitor(kernel);
  }

  // A kernel may die while the page is not connected to it, with the server or before the page is there: then nobody
  // says so. Another server's page has no address to ask.
  if (kernels) setInterval(async () => {
    const kernelId = kernelOfPage();
    if (!kernelId || isConnected || hasEnded) return;
    const answer = await fetch(kernels + kernelId).catch(() => null); // the server is away
    if (answer?.status !== 404) return;
    giveUp(ENDED);
  }, 2000);

  const poll = setInterval(async () => {
    if (!window["jupyterapp"]) return; // Voilà's front end has not started yet
    clearInterval(poll);
    watchKernel((await window["jupyterapp"].widgetManagerPromise.promise).kernel);
  }, 200);
}
