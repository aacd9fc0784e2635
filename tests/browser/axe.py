"""What must not be found on any tab of the page: by axe, among its ids, in its texts."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

WITHOUT_DRAWINGS = """() => {
  window.drawings = [...document.querySelectorAll('.ex-chart-plot, mjx-container')].map((plot) => {
    const drawing = document.createDocumentFragment();
    drawing.append(...plot.childNodes);
    return () => plot.append(drawing);
  });
}"""
"""Takes out what plotly has drawn, whose thousands of nodes axe would walk through to leave them
out."""
WITH_DRAWINGS = "() => window.drawings.forEach((put_back) => put_back())"
SHARED = """() => {
  const nodes = [...document.querySelectorAll('.ex-root [id]:not(.ex-chart-plot *)')];
  const group = (radio) => radio.closest('[role=radiogroup]').getAttribute('aria-labelledby');
  const radios = [...document.querySelectorAll('.ex-root input[type=radio]')];
  const pairs = new Set(radios.map((radio) => `${radio.name} of ${group(radio)}`));
  const twice = (names) => names.filter((name, index) => names.indexOf(name) < index);
  return [...twice(nodes.map((node) => node.id)), ...twice([...pairs].map((pair) => pair.split(' ')[0]))];
}"""
"""Ids that several nodes have, and names that several groups of radio buttons have. (plotly's own
ids are its own.)"""
RAW = """() => {
  const found = [];
  const walker = document.createTreeWalker(document.querySelector('.ex-root'), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const { data, parentElement } = walker.currentNode;
    if (/[\\p{L}]_[\\p{L}(]|\\^/u.test(data) && !parentElement.closest('code, style')) found.push(data);
  }
  return found;
}"""
"""Text, in legends and lists too, in which a formula stands as it was typed: W_Q, 2^(−l/2)."""


def look(page: Page, path: tuple[str, ...], within: str = "html", **options: object) -> str:
    """What axe has to say of a part of the page in these tabs; empty where it has nothing."""
    for title in path:
        page.get_by_role("tab", name=title, exact=True).click()
    page.evaluate(WITHOUT_DRAWINGS)
    context = {"include": [[within]], "exclude": [[".ex-chart-plot"]]}
    found = Axe().run(page, context, {"resultTypes": ["violations"], **options})
    page.evaluate(WITH_DRAWINGS)
    return str(found.generate_report()) if found.violations_count else ""
