"""Each row of a table is a subtest that fails, is skipped and is shown by itself."""

from pathlib import Path

from .tables import each_row

pytest_plugins = ("pytester",)

TABLE = """
import pytest
from tables import each_row

ran = []

@each_row("digit", range(4))
@each_row("sign, word", [(1, "plus"), (-1, "minus")])
def test_product(tmp_path, monkeypatch, digit, sign, word):
    ran.append(tmp_path.name)
    monkeypatch.setenv("DIGIT", str(digit))
    product = digit * sign
    assert product < 3, word
    if product == -2:
        with pytest.raises(ValueError, match="never"):
            pass

@each_row("file", ["here", "missing"])
def test_files(file):
    if file == "missing":
        pytest.skip("no such file")

@each_row("nothing", [])
def test_no_row(nothing):
    assert nothing

def test_after():
    import os
    assert ran == [f"row{number}" for number in range(8)]
    assert "DIGIT" not in os.environ
"""


@each_row("workers", [0, 1])
def test_a_failing_row_shows_itself_its_line_and_its_locals(pytester, workers):
    pytester.makepyfile(
        tables=Path(__file__).with_name("tables.py").read_text(encoding="utf-8"),
        test_table=TABLE,
    )
    ran = pytester.runpytest_subprocess(
        "-p", "no:cacheprovider", "--showlocals", "-ra", "-n", str(workers)
    )
    ran.assert_outcomes(passed=2, failed=3, skipped=1)
    ran.stdout.fnmatch_lines(
        [
            "*test_product ?row 5: digit=2, sign=-1, word='minus'?*",
            '>           with pytest.raises(ValueError, match="never"):',
            "product    = -2",
            "*test_product ?row 6: digit=3, sign=1, word='plus'?*",
            ">       assert product < 3, word",
            "E       AssertionError: plus",
            "product    = 3",
            "test_table.py:*: AssertionError",
            "contains 2 failed subtests",
            "SKIPPED * test_table.py:20: 1 of 2 rows: row 1: no such file",
        ]
    )
    assert "tables.py:" not in ran.stdout.str()
