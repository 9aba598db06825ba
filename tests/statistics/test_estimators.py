"""Names, and what they load."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from hooktrainer.statistics import ESTIMATORS


def test_names_and_the_report_load_neither_scipy_nor_torch():
    """Where a statistic is computed SciPy is loaded, where it is only named it is not."""
    program = (
        "import sys, hooktrainer, hooktrainer.statistics as s\n"
        "s.interval, s.decided, s.ESTIMATORS\n"
        "import hooktrainer.show.report.report_page, hooktrainer.cli.report\n"
        "print([name for name in ('scipy', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end():
    scores = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 700.0])
    assert ESTIMATORS["iqm"](scores) == 3.5
    assert ESTIMATORS["iqm"](np.stack([scores, scores + 1]), axis=1).tolist() == [3.5, 4.5]
    assert ESTIMATORS["median"](scores) == pytest.approx(3.5)
