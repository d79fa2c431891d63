"""GMAI-MMBench's TSV files, from bytes to documents."""

import base64

import pytest

from medtasks.data.catalogue import CATALOGUE
from medtasks.data.document_store import load_documents
from medtasks.data.prepare import prepare_dataset
from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.samples import Sample
from medtasks.errors import SourceError
from medtasks.home import dataset_folder

from .. import tiny_gmai
from ..tables import each_row

VAL, TEST, MCLS = (CATALOGUE[f"gmai_mmbench_{part}"] for part in ("val", "test", "mcls"))
CHANGED = {"allow_changed": True}


@pytest.fixture
def source(tmp_path):
    def write(rows, name="GMAI-MMBench_VAL.tsv", columns=tiny_gmai.COLUMNS):
        return tiny_gmai.write(tmp_path / "source" / name, rows, columns).parent

    return write


def prepared(source, info=VAL, **options):
    prepare(info.name, Options(source, **{**CHANGED, **options}))
    return load_documents(info.name)


def test_columns_are_normalised(source):
    rows = tiny_gmai.rows(40)

    documents = prepared(source(rows))

    assert len(documents) == 40
    for row, document in zip(rows, documents, strict=True):
        assert document["doc_id"] == row["index"]
        assert document["question"] == row["question"]
        assert document["options"] == [row[letter] for letter in "ABCDEF" if row.get(letter)]
        assert document["answer"] == row["answer"]
        assert document["clinical_task"] == row["clinical VQA task"]
        assert document["granularity"] == row["perceptual granularity"]
        assert document["keyword"] == row["category"]
        assert document["hint"] is None


def test_texts_with_quotes_tabs_and_lines_stay_whole(source):
    rows = tiny_gmai.rows(40)
    rows[3] |= {"question": 'A "tab"\tand a\nnew line?', "A": '5" disc', "B": '"'}

    document = prepared(source(rows))[3]

    assert document["question"] == rows[3]["question"]
    assert document["options"] == [
        rows[3][letter] for letter in "ABCDEF" if rows[3].get(letter)
    ]


def test_words_that_look_like_nothing_stay_words(source):
    rows = tiny_gmai.rows(40)
    rows[3] |= {"department": "None", "modality": "NA"}

    document = prepared(source(rows))[3]

    assert document["department"] == "None"
    assert document["modality"] == "NA"


def test_images_are_the_published_files(source):
    rows = tiny_gmai.rows(30)
    rows[0]["image"] = rows[1]["index"]  # a later one

    documents = prepared(
        source([*rows, {**rows[2], "index": "chained", "image": rows[0]["index"]}])
    )

    assert documents[-1]["image_files"] == documents[1]["image_files"]
    by_index = {row["index"]: row for row in rows}
    for row, document in zip(rows, documents[:-1], strict=True):
        data = row["image"] if len(row["image"]) > 64 else by_index[row["image"]]["image"]
        stored = dataset_folder(VAL.name) / document["image_files"][0]
        assert stored.read_bytes() == base64.b64decode(data)
    assert list(prepare_dataset.verify(VAL.name)) == []


def test_only_twins_are_one_cluster(source):
    base = {**tiny_gmai.rows(1)[0], "perceptual granularity": "Mask Level"}
    rows = []
    for case in range(3):
        rows.append({**base, "index": f"m{case}", "image": tiny_gmai.png(case)})
    for case in range(3):
        rows.append(
            {
                **base,
                "index": f"c{case}",
                "image": tiny_gmai.png(50 + case),
                "perceptual granularity": "Contour Level",
            }
        )
    rows.append(
        {
            **rows[3],
            "index": "other",
            "question": "Another question",
            "image": tiny_gmai.png(99),
        }
    )
    rows.append(
        {
            **base,
            "index": "whole",
            "perceptual granularity": "Image Level",
            "image": tiny_gmai.png(98),
        }
    )

    units = {
        document["doc_id"]: Sample(document).cluster_id for document in prepared(source(rows))
    }
    assert all(units[f"m{case}"] == units[f"c{case}"] for case in range(3))
    assert len(set(units.values())) == 5


@pytest.fixture
def answerless(source):
    """The test part, in all its files."""
    columns = [column for column in tiny_gmai.COLUMNS if column != "answer"]
    for part, name in enumerate(TEST.md5):
        rows = [
            {**row, "index": f"{part}-{row['index']}"} for row in tiny_gmai.rows(3, seed=part)
        ]
        folder = source(rows, name, columns)
    return folder


def test_the_test_part_has_no_answers(answerless):
    documents = prepared(answerless, TEST)
    assert len(documents) == 33
    assert {document["answer"] for document in documents} == {None}


def test_a_missing_file_of_the_answerless_part_is_named(answerless):
    (answerless / next(reversed(TEST.md5))).unlink()
    with pytest.raises(SourceError, match=r"holds no GMAI_mm_bench_TEST_part_11\.tsv"):
        prepared(answerless, TEST)


def test_several_answers(source):
    rows = tiny_gmai.rows(4)
    for row, answer in zip(rows, ("B,A", "A", "A, B", "B"), strict=True):
        row["answer"] = answer
    documents = prepared(source(rows, "own.tsv"), MCLS)
    assert [document["answers"] for document in documents] == [
        ["A", "B"],
        ["A"],
        ["A", "B"],
        ["B"],
    ]


def test_published_checksum_is_demanded(source):
    folder = source(tiny_gmai.rows(3))
    with pytest.raises(
        SourceError,
        match=r"GMAI-MMBench_VAL\.tsv is not the published file \(MD5 .*--allow-changed",
    ):
        prepared(folder, allow_changed=False)
    assert prepare(VAL.name, Options(folder, allow_changed=True)).revision == "local"


NAMES_OF_VAL = ["GMAI_mm_bench_VAL.tsv", "gmai-mmbench_val.TSV"]


@pytest.mark.parametrize("name", NAMES_OF_VAL)
def test_the_validation_part_has_several_names(source, name):
    folder = source(tiny_gmai.rows(3), name)
    assert len(prepared(folder)) == 3
    with pytest.raises(SourceError, match=f"{name} is not the published file"):
        prepared(folder, allow_changed=False)


@pytest.mark.parametrize("name", NAMES_OF_VAL)
def test_of_two_files_the_name_in_the_catalogue_comes_first(source, name):
    source(tiny_gmai.rows(3), name)
    folder = source(tiny_gmai.rows(4))
    assert len(prepared(folder)) == 4


@pytest.mark.parametrize("name", NAMES_OF_VAL)
def test_two_files_of_other_names_are_refused(source, name):
    source(tiny_gmai.rows(3), name)
    folder = source(tiny_gmai.rows(4))
    (folder / "GMAI-MMBench_VAL.tsv").rename(folder / "GMAI MMBench VAL.tsv")
    with pytest.raises(SourceError, match=r"holds both .* keep the one that shall be used"):
        prepared(folder)


def test_a_cut_file_is_refused(source):
    folder = source(tiny_gmai.rows(6))
    path = folder / "GMAI-MMBench_VAL.tsv"
    whole = path.read_bytes()
    for end, message in (
        (
            -250,
            r"row 6.*: it has more or fewer fields than the header; download the file again",
        ),
        (whole.rindex(b'"') - len(whole), "is no table after row 5"),
    ):
        path.write_bytes(whole[:end])
        with pytest.raises(SourceError, match=message):
            prepared(folder, allow_incomplete=True)


@each_row(
    "change, message",
    [
        ({"image": "A" * 100}, r"row 2 \(index 1001\): its image is broken"),
        (
            {"image": "5"},
            r"row 2 \(index 1001\): its image is that of row index 5, which is not there",
        ),
        (
            {"answer": "F", "F": ""},
            r"row 2 \(index 1001\): its answer is 'F', and the options are",
        ),
        (
            {"C": "", "D": "x", "answer": "A"},
            r"row 2 \(index 1001\): it has an option [D-F] and no option C",
        ),
        ({"index": ""}, "row 2: it has no index"),
    ],
)
def test_bad_rows_are_named_and_cost_nothing_else(source, change, message):
    rows = [
        {**row, "image": tiny_gmai.png(number)} for number, row in enumerate(tiny_gmai.rows(4))
    ]
    rows[1] |= change
    folder = source(rows)
    with pytest.raises(SourceError, match=f"{message}.*--allow-incomplete"):
        prepared(folder)
    documents = prepared(folder, allow_incomplete=True)
    assert [document["doc_id"] for document in documents] == ["1000", "1002", "1003"]


def test_rows_on_a_broken_image_are_named_too(source):
    rows = [
        {**row, "image": tiny_gmai.png(number)} for number, row in enumerate(tiny_gmai.rows(3))
    ]
    rows[0]["image"], rows[2]["image"] = "A" * 80, rows[0]["index"]
    assert [
        document["doc_id"] for document in prepared(source(rows), allow_incomplete=True)
    ] == ["1001"]
