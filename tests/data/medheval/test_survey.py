"""What can be prepared from a user's folders, and the command that prepares it."""

import shutil

import pytest
from typer.testing import CliRunner

from medtasks.cli.data import app
from medtasks.data.dataset_manifest import FILE_NAME
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.sources.medheval_sets import image_totals, survey
from medtasks.home import dataset_folder

from ... import medheval_sources as sources
from ...tables import each_row

MM = "medheval_visual_mm"


@pytest.fixture
def command(home):
    def run(*arguments):
        return CliRunner().invoke(app, ["prepare", *map(str, arguments)])

    return run


def prepared_sets():
    return [name for name in sources.SETS if (dataset_folder(name) / FILE_NAME).is_file()]


def test_what_is_there_and_what_is_missing(home, clone):
    options = Options(clone, allow_changed=True)
    sets = survey(options)
    assert [(readiness.name, readiness.cause) for readiness in sets] == [(name, None) for name in sources.SETS]
    # Sets share images; each counts once.
    assert image_totals(sets) == {"slake": (2, 2), "vqa_rad": (2, 2), "iu_xray": (2, 2), "mimic_cxr": (2, 2)}
    shutil.rmtree(clone / "images" / sources.IU.format(1, 1).partition("/")[0])
    sets = survey(options)
    assert {readiness.name: readiness.cause for readiness in sets if readiness.cause} == {
        "medheval_visual_cxr": "it lacks images, 1 of IU-Xray"
    }
    assert image_totals(sets)["iu_xray"] == (1, 2)
    sets = survey(Options(clone, allow_changed=True, allow_incomplete=True))
    assert all(readiness.cause is None for readiness in sets)


def test_only_the_public_images(home, clone, command):
    shutil.rmtree(clone / "images" / "p10")
    (clone / sources.file_of("medheval_context")).unlink()
    result = command("medheval", "--source", clone, "--allow-changed")
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "images of SLAKE: 2 of 2 found",
        "images of VQA-RAD: 2 of 2 found",
        "images of IU-Xray: 2 of 2 found",
        "images of MIMIC-CXR-JPG: 0 of 2 found, 2 missing",
        "not prepared: medheval_visual_cxr, it lacks images, 2 of MIMIC-CXR-JPG",
        "not prepared: medheval_visual_report, none of its images was found",
        "not prepared: medheval_knowledge_closed, none of its images was found",
        "not prepared: medheval_knowledge_open, none of its images was found",
        f"not prepared: medheval_context, its file {sources.file_of('medheval_context')} is not below {clone}",
        *result.output.splitlines()[9:],
    ]
    assert result.output.splitlines()[9].startswith("Prepared medheval_visual_mm: 13 questions, 4 images")
    assert prepared_sets() == [MM]


def test_images_are_named_by_source(clone, command, tmp_path):
    roots = {"slake": "xmlab*", "vqa_rad": "synpic*", "iu_xray": "CXR*", "mimic_cxr": "p10"}
    for key, names in roots.items():
        (tmp_path / key).mkdir()
        for path in sorted((clone / "images").glob(names)):
            path.rename(tmp_path / key / path.name)
    named = [argument for key in roots for argument in ("--images", f"{key}={tmp_path / key}")]
    result = command("medheval", "--source", clone, "--allow-changed", *named)
    assert result.exit_code == 0
    assert prepared_sets() == sources.SETS


def test_one_set_and_nothing_at_all(clone, command, home, tmp_path):
    (clone / "images" / "synpic8.jpg").unlink()
    result = command(MM, "--source", clone, "--allow-changed", "--allow-incomplete")
    assert "images of VQA-RAD: 1 of 2 found, 1 missing\nleft out: MM-VisHal.json: 1 of the 2" in result.output
    assert f"Prepared {MM}: 10 questions, 3 images" in result.output
    shutil.rmtree(clone / "images")
    result = command("medheval", "--source", clone, "--allow-changed")
    assert "no set of MedHEval can be prepared" in str(result.exception)
    assert "--images SOURCE=DIR" in str(result.exception)
    result = command("medheval")
    assert "run 'medtasks data prepare medheval --source CLONE --images SOURCE=DIR'" in str(result.exception)
    result = command("medheval", "--source", tmp_path / "nowhere")
    assert str(result.exception).startswith(f"{tmp_path / 'nowhere'} is no folder")


@each_row(
    "arguments, complaint",
    [
        ([MM, "--images", "slake"], "is not of the form SOURCE=DIR, such as slake=/data/slake/imgs"),
        ([MM, "--images", "=x"], "is not of the form SOURCE=DIR"),
        ([MM, "--images", "slake=a", "--images", "slake=b"], "--images names slake twice"),
        (["mediconfusion", "--images", "slake=a"], "--images is for the sets of MedHEval"),
        (["mediconfusion", "--allow-changed"], "--allow-changed is for the sets of MedHEval"),
    ],
)
def test_arguments_that_make_no_sense(command, arguments, complaint):
    result = command(*arguments)
    assert result.exit_code == 2
    assert complaint in " ".join(result.output.replace("│", " ").split())


def test_golden_medheval_shared_files(command, test_data):
    result = command("medheval", "--source", test_data / "medheval")
    assert result.exit_code == 0
    assert "images of SLAKE: 180 of 180 found\nimages of VQA-RAD: 314 of 314 found\n" in result.output
    assert "Prepared medheval_visual_mm: 3610 questions, 494 images" in result.output
