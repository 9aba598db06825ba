"""Untrusted runs: pages run no script, and no other file is touched."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest
from saved_runs import BALANCES

from hooktrainer.cli import main
from hooktrainer.show import View, make_exhibits, make_gallery, write_board

SMALL = View(size=60, seconds=0.2)
EVIL = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[2J"
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "section", "article"),
    *("h1", "h2", "h3", "p", "b", "i", "br", "code", "div", "span", "figure", "figcaption"),
    *("table", "thead", "tbody", "tr", "th", "td", "details", "summary", "img", "svg", "g", "line"),
    *("text", "polyline", "polygon", "circle", "path", "rect", "a", "footer"),
}


class Strict(HTMLParser):
    """Collects tags, attributes and where they lead."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.places = set(), set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.places |= {value for name, value in attrs if name in ("href", "src")}


def check(page: str) -> None:
    found = Strict(page)
    assert found.tags <= TAGS
    assert not [name for name in found.attributes if name.startswith("on")]
    assert all(place.startswith(("#step_", "data:image/webp;base64,")) for place in found.places)
    policy = '<meta http-equiv="Content-Security-Policy" content="'
    assert page.index(policy) < page.index("<title>")
    assert "default-src 'none'" in page


@pytest.fixture
def run(make_run):
    return make_run(policies={0: BALANCES})


def test_pages_run_nothing(run, tmp_path):
    run.write_config({"seed": 3, EVIL: EVIL, "nested": {EVIL: [EVIL]}})
    names = f"100,eval/{EVIL},1\n100,time/hook/{EVIL},0.1\n100,time/step,0.5\n"
    run.metrics.write_text(f"step,name,value\n100,eval/return,1\n200,eval/return,2\n{names}")
    state = run.read() | {
        **dict.fromkeys(("experiment", "reason", "command", "git_commit"), EVIL),
        "versions": {EVIL: EVIL},
    }
    run.run_file.write_text(json.dumps(state))
    made = make_gallery(run, tmp_path / "page.html", episodes=1, view=SMALL)
    page = made.file.read_text(encoding="utf-8")
    assert "&lt;script&gt;" in page
    check(page)


def test_nothing_is_written_through_links(run, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("kept")
    exhibits = make_exhibits(run, episodes=1, view=SMALL)
    board = run.logs / "gallery"
    board.mkdir(parents=True)
    (board / "events.out.tfevents.0000000000.gallery").symlink_to(precious)
    (board / "events.out.tfevents.x.gallery").write_text("")
    (board / "strange.gallery").write_text("")
    assert write_board(run.logs, exhibits) == 1
    (run.path / "gallery.html").symlink_to(precious)
    assert main(["gallery", str(run.path), "--size", "60", "--seconds", "0.2"]) == 0
    assert "</html>" in (run.path / "gallery.html").read_text()
    assert not (run.path / "gallery.html").is_symlink()
    assert precious.read_text() == "kept"
