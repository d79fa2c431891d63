"""Lists of images: a user's own, and the published layouts as they are downloaded."""

import json

import pytest

from medtasks.curate.pairs.image_lists import read_image_list
from medtasks.errors import SourceError


def files(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"-")


def lines(path, *rows):
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    return path


def row(number, **more):
    return {"id": f"i{number}", "image": f"{number}.png", "caption": f"c{number}", **more}


def test_an_own_list_keeps_what_is_whole_and_counts_the_rest(tmp_path):
    files(tmp_path, "1.png", "2.png", "3.png", "sub/4.png")
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
    found = read_image_list(path)
    assert found.layout == "own list"
    assert [one.image_id for one in found.images] == ["4", "i1", "i2"]
    assert found.images[0].file == tmp_path / "sub/4.png"
    assert found.images[1].caption == "two words"
    assert (found.images[2].group, found.images[2].licence) == ("17", "CC BY")
    assert found.left_out == {"without a caption": 2, "image file missing": 2}
    assert found.unused == ("patient",)
    lines(path, row(2, group=18), row(1))
    assert read_image_list(path).digest != found.digest


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([row(1), row(2), row(1)], "row 3: it has the id of list.jsonl row 1"),
        ([row(1, caption=""), row(2), row(1)], "row 3: it has the id of list.jsonl row 1"),
        ([{"id": "a", "image": "1.png", "captoin": "x"}], "no line has a caption.*did you mean 'captoin'"),
        ([row(1), "[1]\n"], "row 2 is a list and not an object"),
        ([row(1), '{"id": "a", \n'], "row 2 is no JSON"),
        ([{"image": "1.png", "caption": "x"}], "row 1 lacks 'id'"),
        ([row(1, group=1.5)], "row 1: group is .* and not a whole number"),
        ([row(1)], "holds 1 usable images"),
        ([], "holds 0 usable images"),
    ],
)
def test_a_list_that_cannot_be_used_is_one_sentence_without_ids(tmp_path, rows, says):
    files(tmp_path, "1.png", "2.png")
    with pytest.raises(SourceError, match=says):
        read_image_list(lines(tmp_path / "list.jsonl", *rows))


def test_roco_with_the_article_of_each_image(tmp_path):
    folder = tmp_path / "data/test/radiology"
    other = tmp_path / "data/train/radiology"
    files(folder, "images/ROCO_00001.jpg", "images/ROCO_00006.jpg", "images/ROCO_00008.jpg")
    files(other, "images/ROCO_00002.jpg", "images/ROCO_00003.jpg")
    (folder / "captions.txt").write_text(
        "ROCO_00001\t Axial MRI (coronal view).\nROCO_00006\t CT of\ta mass.\nROCO_00007\tGone.\nROCO_00008\t \n"
    )
    (folder / "licences.txt").write_text("ROCO_ID,PMC_ID,CC\nROCO_00001,PMC4608653_cro-g01.jpg,CC BY-NC\n")
    get = "wget -r ftp://ftp.ncbi.nlm.nih.gov/pub/pmc/oa_package/70/6d/PMC4840839.tar.gz -P /path/to/Dir"
    (folder / "dlinks.txt").write_text(f"ROCO_00006\t{get}\tol-11-g02.jpg\n")
    (other / "captions.txt").write_text("ROCO_00002\t Knee.\nROCO_00003\t Hip.\nROCO_00001\t Again.\n")
    found = read_image_list(tmp_path)
    assert found.layout == "ROCO"
    assert [(one.image_id, one.caption, one.group, one.licence) for one in found.images] == [
        ("ROCO_00001", "Axial MRI (coronal view).", "PMC4608653", "CC BY-NC"),
        ("ROCO_00002", "Knee.", None, None),
        ("ROCO_00003", "Hip.", None, None),
        ("ROCO_00006", "CT of\ta mass.", "PMC4840839", None),
    ]
    assert found.left_out == {"image file missing": 1, "without a caption": 1, "listed twice": 1}


def test_rocov2(tmp_path):
    files(tmp_path, "test/ROCOv2_2023_test_000001.jpg", "train_images/train/ROCOv2_2023_train_000001.jpg")
    (tmp_path / "test_captions.csv").write_text('ID,Caption\nROCOv2_2023_test_000001,"A, with ""B""\nand C"\n')
    (tmp_path / "train_captions.csv").write_text("ID,Caption\nROCOv2_2023_train_000001,Knee\n")
    (tmp_path / "license_information.csv").write_text(
        "ID,PMCID,Attribution,Link\nROCOv2_2023_test_000001,PMC12,CC BY [A et al. (2020)],https://example.org\n"
    )
    found = read_image_list(tmp_path)
    assert found.layout == "ROCOv2"
    first, second = found.images
    assert (first.caption, first.group, first.licence) == ('A, with "B"\nand C', "PMC12", "CC BY [A et al. (2020)]")
    assert (second.caption, second.group, second.file.parent.name) == ("Knee", None, "train")


@pytest.mark.parametrize("folder", ["images", "caption_T060_filtered_top4_sep_v0_subfigures"])
def test_pmc_oa(tmp_path, folder):
    files(tmp_path, f"{folder}/PMC212319_Fig3_4.jpg", f"{folder}/PMC212319_Fig3_5.jpg")
    rows = [{"image": f"PMC212319_Fig3_{number}.jpg", "caption": "Cells."} for number in (4, 5, 4, 6)]
    path = lines(tmp_path / "pmc_oa.jsonl", *rows, {"image": "PMC1_Fig1_1.jpg", "caption": None})
    for source in (path, tmp_path):
        found = read_image_list(source)
        assert found.layout == "PMC-OA"
        assert [(one.image_id, one.group) for one in found.images] == [
            ("PMC212319_Fig3_4", "PMC212319"),
            ("PMC212319_Fig3_5", "PMC212319"),
        ]
        assert found.left_out == {"image file missing": 2, "listed twice": 1}


def test_what_is_no_list(tmp_path):
    with pytest.raises(SourceError, match="neither a list nor a checkout"):
        read_image_list(tmp_path)
    with pytest.raises(SourceError, match="does not exist"):
        read_image_list(tmp_path / "nothing")


def test_a_line_that_no_study_could_hold_is_named_before_anything_is_computed(tmp_path):
    files(tmp_path, "1.png", "2.png")
    path = lines(tmp_path / "list.jsonl", row(1), row(2, caption="half \ud83d"))
    with pytest.raises(SourceError, match="row 2: it holds half a surrogate pair"):
        read_image_list(path)
    lines(path, row(1), row(2), row(3, image="x" * 300))  # a name that no file can have is that of no file
    assert read_image_list(path).left_out == {"image file missing": 1}
