"""Lists of images with captions, and which pairs are found in them: planted ones, and those of MediConfusion."""

import json

import numpy as np
import pytest

from medtasks.curate.pairs.pair_search import find_pairs, read_image_list
from medtasks.errors import SourceError

from ...tables import each_row

COUNT = 3000


def units(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def planted():
    """Embeddings, and the pairs that are confusing: others are alike to both encoders or to neither."""
    draw = np.random.default_rng(4)
    medical, general = (
        units(draw.standard_normal((COUNT, 64))),
        units(draw.standard_normal((COUNT, 96))),
    )
    pairs = draw.permutation(COUNT)[:600].reshape(-1, 2)
    for first, second in pairs:
        medical[second] = units(medical[first] + 0.3 * units(draw.standard_normal(64)))
    for first, second in pairs[200:]:  # alike to the other one, too
        general[second] = units(general[first] + 0.3 * units(draw.standard_normal(96)))
    wanted = {(min(pair), max(pair)) for pair in pairs[:200].tolist()}
    return (3 * medical).astype(np.float16), general.astype(np.float16), wanted


def numbers(pairs):
    return list(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))


def test_the_exact_search_finds_exactly_the_planted_pairs_in_order_of_their_gaps(planted):
    medical, general, wanted = planted
    found = find_pairs(medical, general)
    assert set(numbers(found)) == wanted
    assert len(found.first) == len(wanted)
    assert (np.diff(found.sim_med - found.sim_gen) <= 1e-9).all()
    first, second = numbers(found)[0]
    for space, given in ((medical, found.sim_med), (general, found.sim_gen)):
        one, two = units(space[[first, second]].astype(np.float64))
        assert given[0] == pytest.approx(one @ two, abs=1e-6)
    assert not found.more


def around(draw, count, dimension, spread):
    """Return vectors around one, whose cosines are about 1 / (1 + spread^2)."""
    centre, noise = (
        units(draw.standard_normal(dimension)),
        units(draw.standard_normal((count, dimension))),
    )
    return units(centre + spread * noise).astype(np.float32)


def test_blocks_of_many_alike_images_give_what_single_pairs_give():
    draw = np.random.default_rng(1)
    medical, general = around(draw, 400, 32, 0.3), around(draw, 400, 16, 0.6)
    precise = [units(space.astype(np.float64)) for space in (medical, general)]
    sims = [np.round(space @ space.T, 6) for space in precise]
    wanted = np.argwhere(np.triu((sims[0] >= 0.9) & (sims[1] <= 0.75), 1))
    order = np.lexsort((*wanted.T[::-1], -np.round(sims[0] - sims[1], 6)[tuple(wanted.T)]))
    found = find_pairs(medical, general)
    assert len(wanted) > 5000
    assert numbers(found) == [tuple(pair) for pair in wanted[order].tolist()]
    few = find_pairs(medical, general, most=300)
    assert few.more
    assert numbers(few) == numbers(found)[:300]


def test_two_images_of_one_group_are_no_pair(planted):
    medical, general, wanted = planted
    groups = np.full(COUNT, -1)
    ordered = sorted(wanted)
    for number, pair in enumerate(ordered[:30]):
        groups[list(pair)] = number
    found = find_pairs(medical, general, groups=groups)
    assert set(numbers(found)) == set(ordered[30:])
    assert found.of_one_group == 30


def test_golden_mediconfusion_selection(recorded_data):
    """The released pairs meet the published limits by the similarities that they carry (section 2)."""
    records = json.loads((recorded_data / "mediconfusion/dataset.json").read_text()).values()
    assert len(records) == 176
    medical, general = (
        np.array([one[key] for one in records]) for key in ("BiomedCLIP_sim", "DINO_sim")
    )
    assert 0.9 <= medical.min() < 0.91
    assert 0.73 < general.max() <= 0.75


def test_a_pair_on_the_limits_is_one():
    noise = np.random.default_rng(0).standard_normal((2, 200, 64))
    noise[:, :2] = 0
    noise[:, 0, 0] = 1
    noise[0, 1, :4] = 9, 3, 3, 1  # its length is 10
    noise[1, 1, :5] = 3, 2, 1, 1, 1  # its length is 4
    medical, general = noise.astype(np.float16)
    found = find_pairs(medical, general)
    assert numbers(found) == [(0, 1)]
    assert (found.sim_med.tolist(), found.sim_gen.tolist()) == ([0.9], [0.75])
    for limits in ({"sim_med": 0.900001}, {"sim_gen": 0.749999}):
        assert numbers(find_pairs(medical, general, **limits)) == []
    vectors = np.eye(3, dtype=np.float16)
    assert numbers(find_pairs(vectors, vectors, 0.5, 1)) == []  # no image is a pair with itself


def lines(path, *rows):
    """Write a list of images, and files for some of them."""
    for name in ("1.png", "2.png", "3.png", "sub/4.png"):
        (path.parent / name).parent.mkdir(exist_ok=True)
        (path.parent / name).write_bytes(b"-")
    path.write_text(
        "".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows)
    )
    return path


def row(number, **more):
    return {"id": f"i{number}", "image": f"{number}.png", "caption": f"c{number}", **more}


def test_an_own_list_keeps_what_is_whole_and_counts_the_rest(tmp_path):
    path = lines(
        tmp_path / "list.jsonl",
        row(2, group=17, licence="CC BY", patient="x"),
        "\n",
        row(1, caption="  two words "),
        '{"id": "i3", "image": "3.png", "caption": NaN}\n',
        {"id": 4, "image": "sub/4.png", "caption": "d", "group": None},
        row(5),
        {"id": "i6", "caption": "e"},
        {"id": "i7", "image": "1.png"},
    )
    images, left_out, unused = read_image_list(path)
    assert [image.image_id for image in images] == ["4", "i1", "i2"]
    assert images[0].file == str(tmp_path / "sub/4.png")
    assert images[1].text == "two words"
    assert (images[2].group, images[2].licence) == ("17", "CC BY")
    assert left_out == {"without a caption": 2, "image file missing": 2}
    assert unused == ["patient"]


@each_row(
    "rows, says",
    [
        ([row(1), row(2), row(1)], "row 3: it has the id of list.jsonl row 1"),
        (
            [{"id": "a", "image": "1.png", "captoin": "x"}],
            "no line has a caption.*did you mean 'captoin'",
        ),
        ([row(1), '{"id": "a", \n'], "row 2 is no JSON"),
        ([{"image": "1.png", "caption": "x"}], "row 1 lacks 'id'"),
        ([row(1, group=1.5)], "row 1: group is .* and not a whole number"),
        ([row(1), row(2, caption="half \ud83d")], "row 2: it holds half a surrogate pair"),
        ([row(1), row(3, image="x" * 300)], r"holds 1 usable images \(1 image file missing\)"),
        ([], "holds 0 usable images"),
    ],
)
def test_a_list_that_cannot_be_used_is_one_sentence_without_ids(tmp_path, rows, says):
    with pytest.raises(SourceError, match=says):
        read_image_list(lines(tmp_path / "list.jsonl", *rows))
    with pytest.raises(
        SourceError, match=r"there is no file .*; give a file of lines with id, image, caption"
    ):
        read_image_list(tmp_path)
