"""Documents of all six sets, and what a user's folders may lack."""

import json

import pytest
from typer.testing import CliRunner

from medtasks.cli.data import app
from medtasks.data.catalogue import CATALOGUE
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.document_store import load_documents
from medtasks.data.prepare.prepare_dataset import prepare, verify
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.schema import CLOSED_QUESTION, COMPONENT_REPORT, OPEN_QUESTION
from medtasks.errors import MedTasksError, UnknownName
from medtasks.home import dataset_folder

from ... import medheval_sources as sources
from ...tables import each_row

MM, CXR, CONTEXT = "medheval_visual_mm", "medheval_visual_cxr", "medheval_context"


@pytest.fixture
def clone(tmp_path):
    return sources.write_source(tmp_path)


@pytest.fixture
def rewrite(clone):
    """Write the file of a set anew, from its invented records after a change."""

    def run(name, change):
        records = [dict(record) for record in sources.RECORDS[name]]
        change(records)
        return sources.write_records(clone, name, records)

    return run


@pytest.fixture
def prepared(home, clone):
    return lambda name, **options: (
        prepare(name, Options(clone, allow_changed=True, **options)),
        load_documents(name),
    )


@pytest.fixture
def complains(home, clone, refuses):
    def run(name, *parts, kind=MedTasksError, **options):
        with refuses(*parts, kind=kind):
            prepare(name, Options(clone, allow_changed=True, **options))

    return run


@each_row("name", sources.SETS)
def test_documents_have_the_columns_of_their_schema(prepared, name):
    columns = {
        "medheval_visual_report": COMPONENT_REPORT,
        "medheval_knowledge_open": OPEN_QUESTION,
    }
    columns = columns.get(name, CLOSED_QUESTION)
    manifest, documents = prepared(name)
    assert manifest.access == CATALOGUE[name].access
    assert manifest.complete
    assert len(documents) == len(sources.RECORDS[name])
    assert all(document.keys() == columns.keys() for document in documents)
    assert [document["doc_id"].rpartition("/")[2] for document in documents] == [
        str(record["qid"]) for record in sources.RECORDS[name]
    ]
    assert list(verify(name)) == []


def test_a_closed_document(prepared):
    manifest, documents = prepared(MM)
    assert (manifest.rows, manifest.images) == (13, 4)
    digest = documents[4]["image_sha256"][0]
    assert documents[4] == {
        "doc_id": "MM-VisHal/4",
        "dataset": MM,
        "image_id": digest[:16],
        "patient_id": None,
        "image_files": [f"images/{digest[:16]}.jpg"],
        "image_sha256": [digest],
        "question": "What is it?",
        "kind": "multi-choice",
        "choices": "A) Cyst, B) Stone, C) Mass, left side",
        "answer": "C",
        "gold": "C",
        "options": ["Cyst", "Stone", "Mass, left side"],
        "flags": [],
        "hallucination": "symptom",
        "source": "slake",
        "modality": "CT",
        "location": "Lung",
    }
    assert documents[3]["image_id"] == documents[4]["image_id"] != documents[2]["image_id"]
    assert (dataset_folder(MM) / f"images/{digest[:16]}.jpg").is_file()


def test_answers_of_closed_questions_are_flagged(prepared):
    _, documents = prepared(MM)
    keys = [(document["answer"], *document["flags"]) for document in documents]
    assert keys == [
        *(
            ("A",),
            ("B",),
            ("B",),
            ("B",),
            ("C",),
            ("B",),
            (None, "options_without_text"),
            ("B",),
        ),
        *(
            (None, "gold_several"),
            (None, "gold_unresolved"),
            (None, "gold_contradictory"),
            (None, "gold_unresolved"),
        ),
        ("B", "gold_interpreted"),
    ]
    assert documents[6]["options"] == ["A", "B", "C"]


def test_closed_questions_have_a_kind_of_hallucination(prepared):
    _, documents = prepared(MM)
    types = {"anatomy": 3, "measurement": 2, "symptom": 6, "technique": 2}
    assert {
        kind: sum(document["hallucination"] == kind for document in documents) for kind in types
    } == types


def test_questions_on_radiographs_name_source_and_patient(prepared):
    _, documents = prepared(CXR)
    assert [document["source"] for document in documents] == ["iu_xray"] * 3 + ["mimic_cxr"] * 3
    assert [document["patient_id"] for document in documents] == [None] * 3 + [
        "10000001",
        "10000001",
        "10000002",
    ]
    assert (documents[4]["options"], documents[4]["flags"]) == ([], ["options_unparsed"])
    assert (documents[3]["kind"], documents[3]["answer"]) == ("binary", "B")


def test_closed_questions_on_knowledge_are_binary(prepared):
    _, documents = prepared("medheval_knowledge_closed")
    assert {(document["kind"], document["hallucination"]) for document in documents} == {
        ("binary", None)
    }
    assert [document["answer"] for document in documents] == ["B", "A", "B", None]


def test_open_questions_on_reports_have_measurements(prepared):
    _, reports = prepared("medheval_visual_report")
    assert (reports[1]["doc_id"], reports[1]["report"]) == (
        "MIMIC-CXR_pairs/2",
        "A nodule of 8 mm in the left lung.",
    )
    assert reports[1]["measurement"] == ["8 mm"]
    assert reports[0]["measurement"] == []
    assert reports[0]["question"] == sources.INSTRUCTION


def test_open_questions_on_knowledge_have_a_type(prepared):
    _, questions = prepared("medheval_knowledge_open")
    assert questions[0]["answer"] == "Drugs that lower blood pressure."
    assert questions[0]["question_type"] == "type4_Knowledge"


@pytest.mark.parametrize("place", ["images/slake", "slake", "slake/imgs", "imgs", ""])
def test_where_images_are_found(home, clone, place):
    (clone / place).mkdir(parents=True, exist_ok=True)
    for folder in sorted((clone / "images").glob("xmlab*")):
        folder.rename(clone / place / folder.name)
    assert prepare(MM, Options(clone, allow_changed=True)).complete


def test_physionets_own_folders_and_only_the_data_of_the_clone(home, clone):
    files = clone.parent / "physionet.org" / "files" / "mimic-cxr-jpg" / "2.1.0" / "files"
    files.mkdir(parents=True)
    (clone / "images" / "p10").rename(files / "p10")
    options = Options(
        clone / "benchmark_data", allow_changed=True, images={"mimic_cxr": clone.parent}
    )
    assert prepare(CONTEXT, options).rows == 4


def test_missing_and_broken_images_are_named(clone, complains, prepared):
    (clone / "images" / "synpic8.jpg").unlink()
    broken = clone / "images" / "xmlab2" / "source.jpg"
    broken.write_bytes(broken.read_bytes()[:-40])
    sentences = [
        *(
            f"MM-VisHal.json row {row}: its image xmlab2/source.jpg (SLAKE) cannot be read"
            for row in (4, 5, 6)
        ),
        "MM-VisHal.json: 1 of the 2 images of VQA-RAD are missing, such as synpic8.jpg, and with them 3 questions",
    ]

    complains(MM, *sentences[:3], "and 1 more", "--allow-incomplete")

    manifest, _ = prepared(MM, allow_incomplete=True)
    assert manifest.left_out == tuple(sentences)
    assert manifest.rows == 7


def test_no_sentence_names_a_patients_image(home, clone):
    images = sorted((clone / "images" / "p10").rglob("*.jpg"))
    images[0].unlink()
    images[1].write_bytes(b"no picture")
    (clone / "images" / "p10" / "p10000003" / "s50000003").mkdir(parents=True)
    manifest = prepare(CXR, Options(clone, allow_changed=True, allow_incomplete=True))
    assert manifest.left_out == (
        "CXR-VisHal.json row 6: its image (MIMIC-CXR-JPG) cannot be read",
        "CXR-VisHal.json: 1 of the 2 images of MIMIC-CXR-JPG are missing, and with them 2 questions",
    )


def record(number, **fields):
    return lambda records: records[number].update(fields)


@each_row(
    "change, complaint",
    [
        (
            record(4, hallucination_type="type_5"),
            ": hallucination_type is 'type_5', and only type_1, type_2, type_3, ",
        ),
        (
            record(4, question_type="open"),
            ": question_type is 'open', and only binary and multi-choice are known",
        ),
        (record(4, qid=0), ": it has the qid 0 of row 1; qids must be unique"),
        (
            record(4, img_name="../secret.jpg"),
            ": img_name has none of the forms xmlab7/x.jpg, synpic7.jpg",
        ),
        (lambda records: records[4].pop("choices"), " lacks 'choices'"),
    ],
)
def test_records_that_make_no_sense(rewrite, complains, change, complaint):
    rewrite(MM, change)
    complains(MM, f"MM-VisHal.json row 5{complaint}")


def test_the_clone_is_needed(home, refuses):
    with refuses(
        f"'{CONTEXT}'",
        "clone of https://github.com/Aofei-Chang/MedHEval",
        "--source CLONE --images",
    ):
        prepare(CONTEXT, Options())


def test_a_folder_of_images_that_the_user_names_is_the_only_one(complains, tmp_path):
    (tmp_path / "empty").mkdir()
    missing = f"'{MM}' needs 2 images of SLAKE, and none of them is below {tmp_path / 'empty'}"
    complains(MM, missing, "--images slake=DIR", images={"slake": tmp_path / "empty"})


def test_a_wrong_folder_of_images_is_named(complains, tmp_path):
    known = "unknown source of images 'slack'; did you mean 'slake'?"
    complains(MM, known, kind=UnknownName, images={"slack": tmp_path})
    complains(
        MM,
        f"the folder of SLAKE images, {tmp_path / 'x'}, does not exist",
        images={"slake": tmp_path / "x"},
    )


def test_a_missing_file_of_the_clone_is_named(clone, complains):
    (clone / sources.file_of(MM)).unlink()
    complains(
        MM,
        f"{clone} holds no benchmark_data/Visual_Misinterpretation_Hallucination/close-ended/MM-VisHal.json",
    )


@pytest.fixture
def command(home):
    def run(*arguments):
        return CliRunner().invoke(app, ["prepare", *map(str, arguments)])

    return run


def test_images_are_named_by_source_and_counted(clone, command, tmp_path):
    for key, names in {"slake": "xmlab*", "vqa_rad": "synpic*"}.items():
        (tmp_path / key).mkdir()
        for path in sorted((clone / "images").glob(names)):
            path.rename(tmp_path / key / path.name)
    (tmp_path / "vqa_rad" / "synpic8.jpg").unlink()
    named = [
        argument
        for key in ("slake", "vqa_rad")
        for argument in ("--images", f"{key}={tmp_path / key}")
    ]

    result = command(MM, "--source", clone, "--allow-changed", "--allow-incomplete", *named)

    lines = result.output.splitlines()
    assert lines[:2] == [
        "images of SLAKE: 2 of 2 found",
        "images of VQA-RAD: 1 of 2 found, 1 missing",
    ]
    assert lines[2].startswith(
        "left out: MM-VisHal.json: 1 of the 2 images of VQA-RAD are missing"
    )
    assert lines[3].startswith(f"Prepared {MM}: 10 questions, 3 images")


@pytest.fixture
def partly_complete(clone, command):
    """Prepare the group from a clone that lacks the file of one set and an image of another."""
    (clone / sources.file_of(CONTEXT)).unlink()
    (clone / "images" / sources.IU.format(2, 2)).unlink()
    return lambda *more: command("medheval", "--source", clone, "--allow-changed", *more)


def test_the_plan_of_a_group_reads_its_sets_from_the_clone(partly_complete):
    plan = [line.split() for line in partly_complete().output.splitlines()[:7]]
    assert plan[0] == ["dataset", "prepared", "access", "size", "to", "do"]
    assert plan[1] == [MM, "no", "public", "1.4", "MB", "read", "--source"]


def test_a_group_prepares_its_complete_sets(partly_complete):
    prepared = [
        line.split(":")[0].removeprefix("Prepared ")
        for line in partly_complete().output.splitlines()
        if line.startswith("Prepared ")
    ]
    assert prepared == [name for name in sources.SETS if name not in (CXR, CONTEXT)]


def test_a_group_names_the_sets_that_lack_something(partly_complete, clone):
    result = partly_complete()

    assert str(result.exception).startswith("2 of the datasets above could not be prepared; ")
    lines = result.output.splitlines()
    first, second = (line for line in lines if line.startswith("not prepared: "))
    assert first.startswith(
        f"not prepared: {CXR}: '{CXR}' is incomplete: CXR-VisHal.json: 1 of the 2 images of IU-Xray"
    )
    assert second.startswith(
        f"not prepared: {CONTEXT}: {clone} holds no {sources.file_of(CONTEXT)}; "
    )
    copy = "--source CLONE --images"
    assert lines[-2:] == [
        f"medtasks data prepare {CXR} {copy} iu_xray=DIR --images mimic_cxr=DIR && \\",
        f"medtasks data prepare {CONTEXT} {copy} mimic_cxr=DIR",
    ]


def test_an_incomplete_set_of_a_group_is_prepared_if_it_may_be(partly_complete):
    result = partly_complete("--allow-incomplete")
    assert f"Prepared {CXR}: 5 questions" in result.output


def test_a_group_of_which_no_set_is_complete(command, tmp_path):
    result = command("medheval", "--source", tmp_path)
    lines = result.output.splitlines()
    assert [line.split(": ")[:2] for line in lines[7:13]] == [
        ["not prepared", name] for name in sources.SETS
    ]
    images = " ".join(
        f"--images {key}=DIR" for key in ("slake", "vqa_rad", "iu_xray", "mimic_cxr")
    )
    assert lines[13:] == [
        "For the rest (words in capitals are yours to replace):",
        f"medtasks data prepare medheval --source CLONE {images}",
    ]
    assert "6 of the datasets above could not be prepared" in str(result.exception)


def test_golden_medheval_published_set(home, command, test_data):
    source = test_data / "medheval"

    result = command(MM, "--source", source)
    assert (
        "images of SLAKE: 180 of 180 found\nimages of VQA-RAD: 314 of 314 found\n"
        in result.output
    )

    manifest = Manifest.read(dataset_folder(MM))
    assert (manifest.rows, manifest.images, manifest.complete) == (3610, 494, True)
    assert (manifest.revision, manifest.left_out) == ("7f7d980", ())

    documents = load_documents(MM)
    published = json.loads(next(source.rglob("MM-VisHal.json")).read_text(encoding="utf-8"))
    assert [document["doc_id"] for document in documents] == [
        f"MM-VisHal/{record['qid']}" for record in published
    ]
    assert sum(document["source"] == "slake" for document in documents) == 1536
    assert all(
        (document["question"], document["choices"], document["gold"])
        == (record["question"], record["choices"], record["answer"])
        for document, record in zip(documents, published, strict=True)
    )

    numbers = dict.fromkeys(("anatomy", "measurement", "symptom", "technique"), 0)
    for document in documents:
        numbers[document["hallucination"]] += 1
    assert list(numbers.values()) == [833, 872, 1297, 608]

    # Read one by one, see the README: options without text, several options, undecided, contradictory, interpreted.
    flags = [flag for document in documents for flag in document["flags"]]
    counted = {flag: flags.count(flag) for flag in dict.fromkeys(flags)}
    assert counted == {
        "gold_unresolved": 70,
        "gold_interpreted": 34,
        "gold_several": 23,
        "options_without_text": 6,
        "gold_contradictory": 2,
    }
