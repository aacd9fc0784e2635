"""The README's pictures, taken of the page itself, each by its link.

    make screenshots

Serves the page on a free port, opens each link in headless Chromium, waits until nothing moves, and
writes docs/*.png. The moving picture docs/drag.gif is a row of screenshots that Pillow joins: the
mouse drags a slider there and halfway back, and rests at each end until the dots are measured."""

from __future__ import annotations

import io
from pathlib import Path
from typing import NamedTuple

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from benchmarks.page import QUIET, program, served

DOCS = Path(__file__).parent.parent / "docs"
PATIENCE = 180_000
"""Milliseconds until a page is at rest."""
SETTLED = """() => {
  const status = [...document.querySelectorAll('.ex-status')].find((node) => node.checkVisibility());
  const plots = [...document.querySelectorAll('.ex-chart-plot')].filter((node) => node.checkVisibility());
  const drawn = plots.map((plot) => plot.dataset.drawn).join();
  const calm = status?.dataset.state === 'idle' && !/(^|,)0/.test(drawn);
  const now = calm ? drawn : '';
  if (now !== window.calmAt?.now) window.calmAt = { now, since: performance.now() };
  return calm && performance.now() - window.calmAt.since > 1500;
}"""
"""Nothing computes, and no chart in sight was drawn for a while."""


class Picture(NamedTuple):
    """A picture, and the page that it shows."""

    name: str
    link: str
    height: int
    width: int = 1440


PICTURES = (
    Picture("page", "?design=llama3&pin=gpt2&pin=deepnorm&pin=post_ln", 1060),
    Picture("your_model", "?tab=yours", 1200),
    Picture("map", "?tab=map", 860),
)
DRAGGED = Picture(
    "drag",
    "?embed=1&show=alpha,norm_placement&charts=second_moment,attention_entropy"
    "&norm_placement=none&n_layers=24&d_model=128&alpha=0.2",
    780,
    1160,
)
FIELD, HELD = "alpha", ((*range(6, 27), *[27] * 10), (*range(26, 9, -1), *[9] * 10))
"""The slider that is dragged, and where the mouse holds it in each frame of two drags, in per cent
of its width."""
FRAME_MS, REST_MS, COLORS = 100, 2500, 128
LARGEST = 1_500_000
"""Bytes of the moving picture, at most."""


def shown(page: Page, address: str, picture: Picture) -> None:
    """Opens the page that a picture shows, and waits until it is at rest."""
    page.set_viewport_size({"width": picture.width, "height": picture.height})
    page.goto(address + picture.link)
    page.wait_for_function(SETTLED, timeout=PATIENCE)


def take(page: Page, address: str, picture: Picture) -> Path:
    """Writes a picture, and gives its path."""
    shown(page, address, picture)
    path = DOCS / f"{picture.name}.png"
    page.screenshot(path=path)
    return path


def film(page: Page, address: str, picture: Picture) -> Path:
    """Writes a moving picture of a slider that is dragged, and gives its path."""
    shown(page, address, picture)
    left, top, width, height = page.locator(f'[data-field="{FIELD}"] input[type=range]').evaluate(
        "slider => { const { x, y, width, height } = slider.getBoundingClientRect(); return [x, y, width, height]; }"
    )
    frames = [(page.screenshot(), REST_MS)]
    for drag in HELD:
        page.mouse.move(left + width * drag[0] / 100, top + height / 2)
        page.mouse.down()
        for position in drag:
            page.mouse.move(left + width * position / 100, top + height / 2)
            page.wait_for_timeout(FRAME_MS)
            frames.append((page.screenshot(), FRAME_MS))
        page.mouse.up()
        page.wait_for_function(SETTLED, timeout=PATIENCE)
        frames.append((page.screenshot(), REST_MS))
    return joined(frames, DOCS / f"{picture.name}.gif")


def joined(frames: list[tuple[bytes, int]], path: Path) -> Path:
    """Writes screenshots, each with its milliseconds, as one moving picture, and gives its path.

    Raises:
        ValueError: it is too large.
    """
    images = [Image.open(io.BytesIO(frame)).convert("RGB") for frame, _ in frames]
    width, height = images[0].size
    few = images[:: len(images) // 16]  # the palette is of all states of the page
    sheet = Image.new("RGB", (width, height * len(few)))
    for place, image in enumerate(few):
        sheet.paste(image, (0, height * place))
    palette = sheet.quantize(COLORS)
    stills = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    stills[0].save(
        path,
        save_all=True,
        append_images=stills[1:],
        loop=0,
        optimize=True,
        duration=[lasts for _, lasts in frames],
    )
    if path.stat().st_size > LARGEST:
        raise ValueError(
            f"{path.name} must have at most {LARGEST:,} bytes; got {path.stat().st_size:,}"
        )
    return path


def main() -> None:
    """Takes all pictures."""
    with served() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=QUIET)
        for picture in PICTURES:
            page = browser.new_page(color_scheme="light")
            print(take(page, address, picture))
            page.close()
        page = browser.new_page(color_scheme="light")
        print(film(page, address, DRAGGED))
        browser.close()


if __name__ == "__main__":
    main()
