"""The gallery page, also in a browser."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser

import pytest
from browser import CHROMIUM, browse
from marks import slow_except
from saved_runs import FALLS, Silent, write_run

from hooktrainer.show import View, make_gallery

SMALL = View(size=120, seconds=0.5)


class Page(HTMLParser):
    """Collects what the tests ask about."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.sources, self.text = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found["href"]] if "href" in found else []
        self.sources += [found["src"]] if "src" in found else []

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    place = tmp_path_factory.mktemp("page")
    made = make_gallery(write_run(place / "run"), place / "page.html", episodes=2, view=SMALL)
    assert made.file == place / "page.html"
    return made.file.read_text(encoding="utf-8")


def test_the_page_needs_nothing_but_itself(page):
    found = Page(page)
    assert len(found.sources) == 2
    assert all(source.startswith("data:image/webp;base64,UklGR") for source in found.sources)
    assert not re.search("https?:", re.sub(r"base64,[^\"]+", "", page))


def test_each_point_of_the_curve_leads_to_its_picture(page):
    found = Page(page)
    names = ["step_000000000000", "step_000000001000"]
    assert found.ids == names
    assert found.links == [f"#{name}" for name in names] * 2  # on wide and on narrow screens
    assert page.count('class="mark"') == 4
    assert "<title>0 frames: return" in page


def test_the_facts_are_on_the_page(page):
    text = " ".join(Page(page).text)
    for fact in ("toy", "CartPole-v1", "seed 3", "finished", "1,000 frames", "500", "lr", "0.1"):
        assert fact in text
    assert "shown are 0.5 s of 10 s" in text
    assert re.search(r"collect\s+40\.00\s+40\.0%", text)  # ms a batch, and of step
    assert re.search(r"mine\s+10\.00\s+10\.0%", text)
    assert "<b>" not in html.unescape(re.sub(r"<[^>]+>", "", page)).replace("<b>", "", 1)


def test_curves_replace_missing_pictures(make_run, tmp_path):
    run = make_run(env=Silent, policies={0: (1.0, 2.5, 0.0)})
    made = make_gallery(run, tmp_path / "page.html", episodes=1, trust=True)
    page = made.file.read_text(encoding="utf-8")
    assert Page(page).sources == []
    assert (
        page.count("No film: Silent does not draw: of its render modes [] none is rgb_array.") == 1
    )
    for line in ("observation[0]", "observation[2]", "action[0]"):
        assert f"<title>{line}</title>" in page


def test_a_run_without_metrics_has_the_snapshots_as_its_curve(make_run, tmp_path):
    run = make_run(policies={0: FALLS, 10: FALLS})
    run.metrics.unlink()
    page = make_gallery(run, tmp_path / "page.html", episodes=1, view=SMALL).file.read_text()
    assert page.count('class="mark"') == 4
    assert "<h2>Time</h2>" not in page


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("width", slow_except([1400, 390], 1))
@pytest.mark.parametrize("env", ["CartPole-v1", Silent], ids=["pictures", "curves"])
def test_in_a_browser(width, env, make_run, tmp_path):
    policies = None if env == "CartPole-v1" else {0: (1.0, 2.5, 0.0), 9: (0.0, 1.0, 1.0)}
    run = make_run(env=env, policies=policies)
    run.update(experiment="one_name_that_is_longer_than_a_narrow_screen")
    made = make_gallery(run, episodes=1, view=SMALL, trust=True)
    found, log = browse(made.file.read_text(encoding="utf-8"), width, tmp_path)
    assert found["width"] == width
    assert found["content"] <= width  # nothing to scroll sideways for
    assert found["charts"] == 1
    assert found["pictures"] == ([120, 120] if env == "CartPole-v1" else [])
    assert found["text"] >= 9  # pixels: it can be read
    assert found["fetched"] == []
    assert found["errors"] == []
    assert [line for line in log.splitlines() if "CONSOLE" in line] == []
