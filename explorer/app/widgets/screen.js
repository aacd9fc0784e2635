/* Tells whether an element is on the screen or about to be printed. Other elements can be drawn later. */

/** Follows whether an element is `visible`. Calls back when that is first known, and at each change. */
function onScreen(element, callback) {
  const place = { visible: false, end: () => observer.disconnect() };
  const observer = new IntersectionObserver((entries) => {
    place.visible = entries.at(-1).isIntersecting;
    callback(place.visible);
  });
  observer.observe(element);
  return place;
}

/** Calls back when the browser is idle. */
const whenIdle = (callback) => (
  window.requestIdleCallback ? requestIdleCallback(callback, { timeout: 1000 }) : setTimeout(callback));

const printMedia = window.matchMedia("print");
const isPrinting = () => printMedia.matches;

/** Calls back when the page is about to be printed. Returns a function that stops. */
const onPrint = (callback) => listen(printMedia, "change", () => isPrinting() && callback());
