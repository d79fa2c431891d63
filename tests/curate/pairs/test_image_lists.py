"""Lists of images with captions."""

import json

import pytest

from medtasks.curate.pairs.pair_search import read_image_list
from medtasks.errors import SourceError

from ...tables import each_row


def lines(path, *rows):
    """Write a list of images, and files for some of them."""
    for name in ("1.png", "2.png", "3.png", "sub/4.png"):
        (path.parent / name).parent.mkdir(exist_ok=True)
        (path.parent / name).write_bytes(b"-")
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
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
        ([row(1, caption=""), row(2), row(1)], "row 3: it has the id of list.jsonl row 1"),
        ([{"id": "a", "image": "1.png", "captoin": "x"}], "no line has a caption.*did you mean 'captoin'"),
        ([row(1), "[1]\n"], "row 2 is a list and not an object"),
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
    with pytest.raises(SourceError, match=r"there is no file .*; give a file of lines with id, image, caption"):
        read_image_list(tmp_path)
