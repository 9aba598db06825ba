"""The documentation is searched where its pages are opened from disk, and fetches nothing."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml
from browser import CHROMIUM, dump

DOCS = Path(__file__).parents[1] / "docs"
SHIM = DOCS / "assets" / "iframe-worker.js"

PAGE = """
<!doctype html><html><body><p id="answer">none</p><script src="{shim}"></script><script>
  const worker = new Worker("worker.js");
  worker.addEventListener("message", ({{ data }}) => {{
    document.getElementById("answer").textContent = JSON.stringify(data);
  }});
  worker.postMessage({{ number: 20 }});
</script></body></html>
"""

WORKER = """
self.addEventListener("message", (event) => postMessage({ number: event.data.number + 1 }));
"""


def test_pages_from_disk_find_the_index_and_no_script_from_elsewhere():
    settings = yaml.load((DOCS.parent / "mkdocs.yml").read_text(), yaml.BaseLoader)
    assert "offline" in settings["plugins"]
    assert settings["extra"]["polyfills"] == [SHIM.relative_to(DOCS).as_posix()]
    assert SHIM.is_file()


@pytest.mark.skipif(CHROMIUM is None, reason="there is no browser")
@pytest.mark.parametrize("shim", [SHIM.name, ""])
def test_what_searches_runs_in_a_page_from_disk(shim, tmp_path):
    shutil.copy(SHIM, tmp_path)
    (tmp_path / "page.html").write_text(PAGE.format(shim=shim))
    (tmp_path / "worker.js").write_text(WORKER)
    answer = re.search(r'id="answer">([^<]*)<', dump(tmp_path / "page.html", tmp_path)[0])
    # Without it a browser that starts workers from files would do as well; this one does not.
    assert answer is not None
    assert answer[1] == ('{"number":21}' if shim else "none")
