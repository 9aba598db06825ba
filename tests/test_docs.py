"""The documentation runs: the Python blocks of README.md and docs/ are executed, page by page.

The blocks of a page share their names, as if a reader typed them one after another. A block titled
with a file name is written to that file and run as a script; if it holds tests, they are run. A
text block titled "output" is what the block before it prints. A block is left out only where the
page says why, in a comment above it: ``<!-- skip: why -->``.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import pkgutil
import re
import runpy
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

import hooktrainer
from hooktrainer import HOOK_POINTS, algorithms
from hooktrainer.algorithms.algorithm import parse
from hooktrainer.cli import main

ROOT = Path(__file__).parent.parent
PLACES = (ROOT, ROOT / "hooktrainer")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# These render, run processes, or train for seconds.
SLOW = {"algorithms", "builders", "from-brax", "from-rsl-rl", "from-sb3", "from-skrl"}
SLOW |= {"from-torchrl", "from-trl", "gallery", "look", "memory", "policies", "resume"}
SLOW |= {"robot-learning", "seeds", "sequences", "several-agents", "supervised", "sweeps"}
SLOW |= {"tensor-worlds", "tutorial", "write-an-algorithm"}
CLI = runpy.run_path(str(ROOT / "docs/generate_cli.py"))
COMMANDS, load = CLI["COMMANDS"], CLI["load"]
BLOCK = re.compile(
    r"^(?P<skip><!-- skip: .+? -->\n+)?"
    r"```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    language: str
    title: str | None
    code: str
    line: int
    skipped: bool


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(
            found["language"],
            found["title"],
            found["code"],
            text.count("\n", 0, found.start("code")),
            found["skip"] is not None,
        )
        for found in BLOCK.finditer(text)
    ]


def run_file(name: str, code: str) -> None:
    Path(name).write_text(code)
    for variable, value in runpy.run_path(name, run_name="__main__").items():
        if variable.startswith("test_"):
            value()


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow) if page.stem in SLOW else page
        for page in PAGES
        if any(b.language == "python" for b in blocks(page))
    ],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_the_code_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = ModuleType("reader")  # a real module, so that what it defines pickles
    monkeypatch.setitem(sys.modules, reader.__name__, reader)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    imported = set(sys.modules)
    try:
        for block in blocks(page):
            if block.language == "text" and block.title == "output":
                assert capsys.readouterr().out == block.code, f"{page.name}, line {block.line}"
            elif block.language == "python" and not block.skipped:
                capsys.readouterr()
                if block.title:
                    run_file(block.title, block.code)
                else:  # lines are numbered as in the page
                    numbered = "\n" * block.line + block.code
                    exec(compile(numbered, str(page), "exec"), reader.__dict__)
    finally:
        for name in set(sys.modules) - imported:
            if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
                del sys.modules[name]


TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
COMMAND = re.compile(
    r"^\$ (?:\.venv/bin/)?(hooktrainer|python recipes/\w+\.py)\b(.*)$", re.MULTILINE
)


def test_every_promise_names_tests_that_exist() -> None:
    page = (ROOT / "docs/promises.md").read_text()
    assert [
        text for text in re.findall(r"`(tests/[^`]+)`", page) if not TEST.match(f"`{text}`")
    ] == []
    for file, name in TEST.findall(page):
        assert f"def {name}(" in (ROOT / file).read_text(), f"{file}::{name}"
    promises = re.findall(r"^\*\*.+?(?=^\*\*|^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert [promise[:60] for promise in promises if not TEST.search(promise)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_command_lines_in_the_pages_are_understood(page: Path) -> None:
    consoles = [block.code for block in blocks(page) if block.language == "console"]
    for program, rest in COMMAND.findall("\n".join(consoles)):
        if program != "hooktrainer":
            assert (ROOT / program.split()[1]).exists(), f"{page.name}: {program}"
            continue
        words = shlex.split(re.split(r"[>|&]", rest)[0], comments=True)
        if not words or words[0].startswith("-"):
            continue
        if "--launcher" in words:
            assert main([*words, "--dry-run"]) == 0, f"{page.name}: {rest}"
            continue
        count = 1 if words[0] in COMMANDS else 2
        name, words = " ".join(words[:count]), words[count:]
        assert name in COMMANDS, f"{page.name}: hooktrainer {name}"
        if name == "train" and words[:1] and words[0] in algorithms.names():
            parse(algorithms.get(words[0]), words[1:])  # exits where an option is wrong or missing
        if name in ("train", "sweep", "branch"):  # the rest is that of what they train
            continue
        own = words[: words.index("--")] if "--" in words else words
        known = {f"--{p.replace('_', '-')}" for p in inspect.signature(load(name)).parameters}
        options = [word for word in own if word.startswith("--") and word != "--help"]
        assert set(options) <= known, f"{page.name}: hooktrainer {name}"


def test_the_page_of_the_command_line_has_every_command() -> None:
    page = CLI["on_page_markdown"]((ROOT / "docs/cli.md").read_text())
    for name in COMMANDS:
        assert f"### `hooktrainer {name}`\n" in page


def test_the_layers_on_the_page_of_the_architecture_are_those_that_make_lint_knows() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    drawn = page.split("<!-- layers -->\n```text\n")[1].split("```")[0]
    rows = [re.findall(r"(?:^|\| )(\w+) ", row, re.M) for row in re.split(r"\n(?=\w)", drawn)]
    listed = (ROOT / "pyproject.toml").read_text().split("layers = [")[1].split("]")[0]
    layers = [layer.split(" | ") for layer in re.findall(r'"(.+)"', listed)]
    assert rows == layers
    package = (ROOT / "hooktrainer").iterdir()
    folders = {path.stem for path in package if path.is_dir() or path.suffix == ".py"}
    assert {*itertools.chain(*layers), "testing"} == {
        name for name in folders if not name.startswith("_")
    }


def test_the_files_on_the_page_of_the_architecture_are_there() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    files = re.findall(r"`((?:\w+/)+\w+\.py|trainer\.py|testing\.py|\w+/(?:\w+/)*)`", page)
    assert len(files) > 30
    assert [name for name in files if not any((root / name).exists() for root in PLACES)] == []


def test_the_reference_has_every_public_package() -> None:
    pages = "\n".join(page.read_text() for page in (ROOT / "docs/api").glob("*.md"))
    pages = runpy.run_path(str(ROOT / "docs/generate.py"))["on_page_markdown"](pages)
    for module in pkgutil.iter_modules(hooktrainer.__path__, "hooktrainer."):
        names = getattr(importlib.import_module(module.name), "__all__", None)
        if module.name == "hooktrainer.cli" or names is None:
            continue
        whole = re.search(rf"^::: {re.escape(module.name)}$", pages, re.MULTILINE)
        missing = [n for n in names if not re.search(rf"^::: hooktrainer\b.*\b{n}$", pages, re.M)]
        inside = {n for n in missing if n in hooktrainer.__all__}  # listed under that name
        assert whole or set(missing) == inside, f"{module.name}: {missing}"


@pytest.fixture(scope="module")
def generate() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs/generate.py"))


def test_the_page_of_the_hooks_has_every_hook(generate: dict[str, Any]) -> None:
    page = generate["on_page_markdown"]((ROOT / "docs/api/hooks.md").read_text())
    for name in hooktrainer.hooks.__all__:
        assert re.search(rf"^\| \[`{name}`\]\[.*\.{name}\] \| \w.*\w.*\. \|$", page, re.M)
        assert f"\n::: hooktrainer.hooks.{name}\n" in page


def test_the_readme_draws_the_loop_as_it_is(generate: dict[str, Any]) -> None:
    assert generate["loop"]() in (ROOT / "README.md").read_text()


def test_the_page_of_hook_points_is_made_from_the_table(generate: dict[str, Any]) -> None:
    page = generate["on_page_markdown"]((ROOT / "docs/hook-points.md").read_text())
    assert "<!-- hook-points" not in page
    row = re.compile(r"\| `(\w+)` \| (?:transform|log|action)")
    rows = [found[1] for line in page.splitlines() if (found := row.match(line))]
    assert rows == list(HOOK_POINTS)
    assert all(point in generate["loop"]() for point in HOOK_POINTS)


def test_every_name_of_torchrl_trainers_has_its_place() -> None:
    import torchrl.trainers
    import torchrl.trainers.helpers

    page = (ROOT / "docs/from-torchrl.md").read_text()
    for module in (torchrl.trainers, torchrl.trainers.helpers):
        assert [name for name in module.__all__ if f"`{name}`" not in page] == []
    source = inspect.getsource(torchrl.trainers.Trainer.register_op)
    stages = set(re.findall(r'dest == "(\w+)"', source)) - set(HOOK_POINTS)
    assert len(stages) == 8
    assert [stage for stage in stages if f"`{stage}(" not in page] == []


def test_the_reference_lists_every_public_name() -> None:
    pages = "\n".join(page.read_text() for page in (ROOT / "docs/api").glob("*.md"))
    pages = runpy.run_path(str(ROOT / "docs/generate.py"))["on_page_markdown"](pages)
    listed = {"HOOK_POINTS"}  # has a page of its own
    for path in re.findall(r"^::: ([\w.]+)$", pages, re.MULTILINE):
        thing = pkgutil.resolve_name(path)
        listed |= set(vars(thing)) if isinstance(thing, ModuleType) else {path.split(".")[-1]}
    assert sorted(set(hooktrainer.__all__) - listed) == []


def test_links_in_the_readme_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / "README.md").read_text())
    assert [link for link in links if not (ROOT / link).exists()] == []
