"""The comparison page of several runs."""

from __future__ import annotations

import pytest

from hooktrainer.show.report.comparison_page import spread


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([], ""),
        ([471.25], "471.25"),
        ([500.0, 500.0], "500 ± 0"),
        ([10.0, 20.0, 30.0], "20 ± 10"),
        ([2.0, 2.5], "2.25 ± 0.35"),
        ([100_000.0, 300_000.0], "200,000 ± 141,421"),
    ],
)
def test_mean_and_deviation_have_two_digits_of_the_deviation(values, text):
    assert spread(values) == text
