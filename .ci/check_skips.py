"""Print which tests were skipped and why; fail if one is not in skips.txt.

    python .ci/check_skips.py RESULTS.xml [RESULTS.xml ...]

The results are those of ``pytest --junitxml``. What is skipped is not tested, so every skip is
allowed by name, with a reason, or it ends the build.
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

ALLOWED = Path(__file__).with_name("skips.txt")


def allowed() -> dict[str, str]:
    """Name to reason of every test that may be skipped."""
    lines = (line.strip() for line in ALLOWED.read_text(encoding="utf-8").splitlines())
    entries = (line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    return dict(entries)


def skipped(results: Path) -> dict[str, str]:
    """Name to message of every test that was skipped; a module that was skipped whole is one."""
    found = {}
    for case in ElementTree.parse(results).iter("testcase"):
        for skip in case.findall("skipped"):
            place = "::".join(filter(None, (case.get("classname"), case.get("name"))))
            found[place] = skip.get("message") or "no reason given"
    return found


def main() -> int:
    """Return 1 if a test was skipped that may not be."""
    may = allowed()
    were = {k: v for file in sys.argv[1:] for k, v in skipped(Path(file)).items()}
    for name, message in were.items():
        print(f"{'skipped' if name in may else 'SKIPPED, not in skips.txt'}: {name}: {message}")
    unexpected = were.keys() - may.keys()
    print(f"{len(were)} of at most {len(may)} allowed tests were skipped")
    if unexpected:
        print(
            f"error: tests were skipped that may not be. Make them run, or say why not in {ALLOWED}"
        )
    return int(bool(unexpected))


if __name__ == "__main__":
    sys.exit(main())
