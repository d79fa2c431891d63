"""Which limits cut pairs and other units, against trying them all."""

from hypothesis import given
from hypothesis import strategies as st

from medtasks.running.preflight import cut_units

PAIRS = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=12)


def test_whole_pairs_are_cut_by_nothing():
    assert cut_units(["a", "a", "b", "b"], 0, 2) == (1, 0, [])
    assert cut_units(["a", "a", "b", "b"], 0, None) == (2, 0, [])
    assert cut_units(["a", "a", "b", "b"], 2, 99) == (1, 0, [])


def test_an_odd_limit_and_an_odd_offset():
    ids = ["a", "a", "b", "b", "c", "c"]
    assert cut_units(ids, 0, 1) == (1, 1, ["--limit 2"])
    assert cut_units(ids, 0, 3) == (2, 1, ["--limit 2", "--limit 4"])
    assert cut_units(ids, 1, 3) == (2, 1, ["--offset 0 --limit 4"])
    assert cut_units(ids, 3, None) == (2, 1, ["--offset 2", "--offset 4"])
    assert cut_units(ids, 5, None) == (1, 1, ["--offset 4"])


def test_rows_of_pairs_that_do_not_follow_each_other():
    assert cut_units(["a", "b", "a", "b", "c", "c"], 0, 2) == (2, 2, ["--limit 4"])


@given(PAIRS, st.integers(0, 12), st.integers(1, 14) | st.none())
def test_the_count_and_the_advice_are_right(ids, offset, limit):
    def cut(start, count):
        asked = range(start, len(ids) if count is None else min(len(ids), start + count))
        inside = {ids[row] for row in asked}
        return sum(any(ids[row] == pair for row in range(len(ids)) if row not in asked) for pair in inside)

    offset = min(offset, len(ids))
    _, count_of_cut, better = cut_units(ids, offset, limit)
    assert count_of_cut == cut(offset, limit)
    assert bool(better) == bool(count_of_cut)
    for advice in better:
        words = advice.split()
        given_now = dict(zip(words[::2], map(int, words[1::2]), strict=True))
        start, count = given_now.get("--offset", offset), given_now.get("--limit", limit)
        assert cut(start, count) == 0
        assert start < len(ids)
        assert count != 0
