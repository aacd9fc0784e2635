/* Whether an element is on the screen, or about to be on paper: what is not need not be drawn at once. */

/** Follows whether an element is `seen`; `turn` is called when that is known, and when it changes. */
function onScreen(element, turn) {
  const place = { seen: false, end: () => watcher.disconnect() };
  const watcher = new IntersectionObserver((entries) => {
    place.seen = entries.at(-1).isIntersecting;
    turn(place.seen);
  });
  watcher.observe(element);
  return place;
}

/** Calls back when the browser has nothing else to do. */
const idly = (go) => (window.requestIdleCallback ? requestIdleCallback(go, { timeout: 1000 }) : setTimeout(go));

const paper = window.matchMedia("print");
const printed = () => paper.matches;

/** Calls back when the page is about to be printed; returns what ends it. */
function onPrint(callback) {
  const listen = () => printed() && callback();
  paper.addEventListener("change", listen);
  return () => paper.removeEventListener("change", listen);
}
