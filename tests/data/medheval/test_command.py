"""Preparing a set of MedHEval from the command line."""

import pytest
from typer.testing import CliRunner

from medtasks.cli.data import app

from ...tables import each_row

MM = "medheval_visual_mm"


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
    named = [argument for key in ("slake", "vqa_rad") for argument in ("--images", f"{key}={tmp_path / key}")]
    result = command(MM, "--source", clone, "--allow-changed", "--allow-incomplete", *named)
    lines = result.output.splitlines()
    assert lines[:2] == ["images of SLAKE: 2 of 2 found", "images of VQA-RAD: 1 of 2 found, 1 missing"]
    assert lines[2].startswith("left out: MM-VisHal.json: 1 of the 2 images of VQA-RAD are missing")
    assert lines[3].startswith(f"Prepared {MM}: 10 questions, 3 images")


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
    result = command(MM, "--source", test_data / "medheval")
    assert result.exit_code == 0
    assert "images of SLAKE: 180 of 180 found\nimages of VQA-RAD: 314 of 314 found\n" in result.output
    assert "Prepared medheval_visual_mm: 3610 questions, 494 images" in result.output
