"""A table of examples fails with every failing row, a row that should raise included."""

import pytest

from .tables import each_row


def test_all_failing_rows_are_listed_and_fixtures_are_passed(tmp_path):
    seen = []

    @each_row("digit", range(4))
    @each_row("sign, word", [(1, "plus"), (-1, "minus")])
    def check(tmp_path, digit, sign, word):
        seen.append((tmp_path.name, digit * sign))
        assert digit * sign < 3, word
        if digit * sign == -2:
            with pytest.raises(ValueError, match="never"):
                pass

    with pytest.raises(AssertionError) as caught:
        check(tmp_path=tmp_path)
    assert len(seen) == 8
    assert {name for name, _ in seen} == {"row0", "row1"}  # each row has a folder of its own
    text = str(caught.value)
    assert text.startswith("2 of 4 rows fail:")
    assert "(2,): AssertionError: 1 of 2 rows fail:\n(-1, 'minus'): Failed: DID NOT RAISE" in text
    assert "(3,): AssertionError: 1 of 2 rows fail:\n(1, 'plus'): AssertionError: plus" in text
