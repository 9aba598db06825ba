"""Pages in Chromium, on wide and narrow screens."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)

# Put into a copy of the page: reports what the browser made of it to the page around it.
PROBE = """<script>
const errors = [];
addEventListener("error", event => errors.push(String(event.message || event.target.src)), true);
addEventListener("load", () => setTimeout(() => parent.postMessage({
  width: innerWidth,
  content: document.documentElement.scrollWidth,
  pictures: [...document.images].map(image => image.naturalWidth),
  charts: [...document.querySelectorAll("figure svg")].filter(svg => svg.clientWidth).length,
  text: Math.min(...[...document.querySelectorAll("p, td, h1, h2, h3, svg text")]
    .map(e => e.getBoundingClientRect().height).filter(height => height)),
  fetched: performance.getEntriesByType("resource").map(entry => entry.name)
    .filter(name => !name.startsWith("data:")),
  errors: errors,
}, "*"), 300));
</script>"""
FRAME = """<!doctype html><body style="margin:0"><iframe src="page.html" width="{width}"
height="900" style="border:0"></iframe><script>addEventListener("message", event => {{
const found = document.createElement("pre"); found.id = "found";
found.textContent = JSON.stringify(event.data); document.body.append(found);}});</script></body>"""


def dump(file: Path, place: Path) -> tuple[str, str]:
    """What Chromium makes of a page from disk, and what it logs; ``place`` is for its profile."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    options += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    options += ["--disable-quic", "--no-first-run", "--virtual-time-budget=5000"]
    options += [f"--user-data-dir={place / 'chromium'}", "--window-size=1400,900"]
    command = [str(CHROMIUM), *options, "--dump-dom", file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, done.stderr


def browse(page, width, tmp_path):
    """Open a page in Chromium; return what the probe found, and what Chromium logged."""
    place = tmp_path / "in_a_frame"
    place.mkdir()
    probed = page.replace("<head>", f"<head>{PROBE}")
    (place / "page.html").write_text(probed, encoding="utf-8")
    file = place / "frame.html"
    file.write_text(FRAME.format(width=width))
    made, logged = dump(file, tmp_path)
    found = re.search(r'<pre id="found">(.*?)</pre>', made)
    assert found is not None, logged
    return json.loads(html.unescape(found[1])), logged
