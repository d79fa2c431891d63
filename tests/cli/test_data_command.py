"""``medtasks data``: list, prepare, verify, where, sample, and ``prepare --from-folder``."""

import json
import os
import re
import shutil
import stat
import subprocess

import pytest
from PIL import Image

from medtasks.data.catalogue import CATALOGUE
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.document_store import load_documents
from medtasks.home import dataset_folder, own_tasks_folder

from .. import tiny_gmai
from ..multimedeval_sources import WRITERS
from ..tables import each_row


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    monkeypatch.setenv("MEDTASKS_HOME", str(folder))
    return folder


@pytest.fixture
def final(home):
    return home / "datasets" / "mediconfusion"


@pytest.fixture
def source(sample_home, tmp_path):
    return shutil.copytree(sample_home / "source" / "mediconfusion", tmp_path / "source")


def state(ran):
    (line,) = [line for line in ran.out.splitlines() if line.startswith("mediconfusion ")]
    return line.split()[1]


def test_list_shows_every_dataset(medtasks, home):
    ran = medtasks("data", "list")

    assert (ran.code, ran.err) == (0, "")
    first, *lines = ran.out.splitlines()
    assert first.split() == ["dataset", "prepared", "access", "questions", "description"]
    assert lines[0].split()[:4] == ["mediconfusion", "no", "public", "352"]
    assert [line.split()[0] for line in lines[:-1]] == list(CATALOGUE)
    assert lines[-1] == f"Data folder: {home}"
    assert not home.exists()


def test_list_shows_one_dataset_with_its_source(medtasks, home):
    ran = medtasks("data", "list", "mediconfusion")

    assert ran.out.splitlines() == [
        "mediconfusion: MediConfusion, 176 confusing pairs of radiology images, one two-option question per pair",
        "  prepared: no",
        "  access:   public",
        "  size:     352 questions, 228 images, 26 MB",
        "  licence:  questions and labels MIT; images under the licence of each PubMed Central article",
        "  source:   https://github.com/AIF4S/MediConfusion at a3045b03a0a2b5e9f051842e3fd088ed0861f2b6",
        "  --source: dataset.json and images/<number>.jpg",
    ]
    layout = "  --source: the Hub's MM/test.jsonl, and images.zip or"
    assert layout in medtasks("data", "list", "medevalkit_medxpertqa_mm").out


def test_list_says_that_a_source_may_change(medtasks, home):
    moving = (
        "at 2013-08-01, without a digest of its files, so that numbers may move with them\n"
    )
    assert moving in medtasks("data", "list", "iu_xray_report").out


def test_list_names_the_nearest_dataset(fails, home):
    fails(["data", "list", "mediconfuson"], "did you mean 'mediconfusion'?")


def test_list_of_a_group_shows_its_datasets_and_size(medtasks, home):
    ran = medtasks("data", "list", "medheval")

    assert [line.split()[0] for line in ran.out.splitlines()[1:7]] == [
        name for name in CATALOGUE if "medheval" in name
    ]
    assert ran.out.splitlines()[7:] == [
        "8.2 MB in all, as stated for 6 of 6 datasets",
        f"Data folder: {home}",
    ]


def test_list_of_a_group_shows_the_datasets_of_others_that_it_asks(medtasks, home):
    kit = medtasks("data", "list", "medevalkit").out

    assert "\nmultimedeval_vqa_rad " in kit  # MedEvalKit asks MultiMedEval's
    assert "14,257.5 MB in all, as stated for 6 of 9 datasets" in kit


def test_list_of_a_tag_or_a_part_shows_its_dataset(medtasks, home):
    assert medtasks("data", "list", "iu_xray").out.splitlines()[1].startswith("iu_xray_report ")
    assert (
        medtasks("data", "list", "medheval_visual_mm_ll")
        .out.splitlines()[1]
        .startswith("medheval_visual_mm ")
    )


def test_list_of_an_unknown_name_is_refused(fails, home):
    fails(
        ["data", "list", "mediconfuson"],
        "unknown dataset 'mediconfuson'; did you mean 'mediconfusion'?",
    )


def test_a_group_of_several_sources_takes_a_folder_for_each_set(
    medtasks, fails, home, tmp_path
):
    WRITERS["pubmedqa"](tmp_path / "copies")
    command = ["data", "prepare", "multimedeval", "--source", tmp_path / "copies"]
    fails(
        command,
        "24 of the datasets above could not be prepared; the command at the end is for them",
    )
    WRITERS["medqa"](tmp_path / "copies" / "multimedeval_medqa")
    ran = fails(
        [*command, "--allow-incomplete"], "23 of the datasets above could not be prepared"
    )
    lines = ran.out.splitlines()
    assert any(line.startswith("Prepared multimedeval_medqa: 6 questions") for line in lines)
    # Rows that are left out tell equal names of several sources no longer apart.
    advice = f"not prepared: multimedeval_pubmedqa: its files are to be in {tmp_path / 'copies/multimedeval_pubmedqa'}"
    assert advice in lines
    assert sum(line.startswith("not prepared: ") for line in lines) == 23


def test_list_knows_the_sample(medtasks, home):
    medtasks("data", "sample", home)
    assert state(medtasks("data", "list")) == "sample"


def test_an_incomplete_source_is_refused(fails, source, final):
    command = ["data", "prepare", "mediconfusion", "--source", source]
    fails(command, "holds 16 pairs, the published set 176", "--allow-incomplete")
    assert not final.exists()


@pytest.fixture
def incomplete(medtasks, home, source):
    command = ["data", "prepare", "mediconfusion", "--source", source, "--allow-incomplete"]
    return medtasks(*command).out


def test_an_incomplete_dataset_is_called_so(medtasks, incomplete, final):
    fingerprint = f"fingerprint {Manifest.read(final).fingerprint}"
    assert incomplete.splitlines() == [
        "left out: the question file holds 16 pairs, the published set 176",
        f"Prepared mediconfusion: 32 questions, 27 images, {fingerprint}, in {final}",
    ]
    verified = medtasks("data", "verify", "mediconfusion")
    assert (
        verified.out
        == f"mediconfusion is as prepared: 32 questions, incomplete, {fingerprint}\n"
    )
    assert state(medtasks("data", "list")) == "incomplete"


def test_list_knows_a_damaged_dataset(medtasks, incomplete, final):
    (final / "manifest.json").write_text("{")
    assert state(medtasks("data", "list")) == "damaged"


def test_verify_needs_a_prepared_dataset(fails, home):
    fails(
        ["data", "verify", "mediconfusion"],
        "is not prepared",
        "medtasks data prepare mediconfusion",
    )


def test_verify_says_that_a_dataset_is_as_prepared(medtasks, home):
    medtasks("data", "sample", home)

    fine = medtasks("data", "verify", "mediconfusion")

    assert (fine.code, fine.err) == (0, "")
    assert "as prepared: 32 questions, synthetic sample" in fine.out


def test_verify_names_a_missing_image(medtasks, fails, home, final):
    medtasks("data", "sample", home)
    (final / "images/90000.jpg").unlink()

    ran = fails(
        ["data", "verify", "mediconfusion"],
        "1 problem in 'mediconfusion'",
        "data prepare mediconfusion",
    )

    assert ran.out == f"{final / 'images/90000.jpg'} is missing\n"


def test_verify_names_a_damaged_table(medtasks, fails, home, final):
    medtasks("data", "sample", home)
    shutil.rmtree(final / "test")
    fails(["data", "verify", "mediconfusion"], "are damaged", "data prepare mediconfusion")


def test_the_sample_is_written_and_told_how_to_use(medtasks, tmp_path, home):
    folder = tmp_path / "try it"

    ran = medtasks("data", "sample", folder)

    assert ran.code == 0
    assert ran.out.splitlines()[-1] == f"Use it with: export MEDTASKS_HOME='{folder}'"
    assert not home.exists()  # the user's own data folder is not touched
    assert os.environ["MEDTASKS_HOME"] == str(home)


def test_the_sample_needs_no_data_folder(medtasks, tmp_path, monkeypatch, home):
    first = medtasks("data", "sample", tmp_path)
    monkeypatch.delenv("MEDTASKS_HOME")

    assert medtasks("data", "sample", tmp_path).out == first.out

    assert "MEDTASKS_HOME" not in os.environ
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    assert len(load_documents("mediconfusion")) == 32


def test_sample_does_not_replace_real_data_or_files(
    medtasks, fails, source, home, final, tmp_path
):
    medtasks("data", "prepare", "mediconfusion", "--source", source, "--allow-incomplete")
    before = Manifest.read(final)
    fails(["data", "sample", home], "holds the real MediConfusion", "choose another folder")
    assert Manifest.read(final) == before
    (final / "manifest.json").write_text("{")
    fails(["data", "sample", home], "choose another folder")
    (tmp_path / "file").touch()
    fails(
        ["data", "sample", tmp_path / "file"], f"cannot write the sample to {tmp_path / 'file'}"
    )


def test_golden_mediconfusion_data_commands(medtasks, test_data, final, write):
    ran = medtasks("data", "prepare", "mediconfusion", "--source", test_data / "mediconfusion")
    assert ran.code == 0
    assert ran.out.startswith("Prepared mediconfusion: 352 questions, 228 images, fingerprint ")
    assert ran.err == ""  # progress bars are for terminals
    assert "352 questions, complete, " in medtasks("data", "verify", "mediconfusion").out
    replies = write({"doc_id": 0, "reply": "A"})
    assert "DATA:" not in medtasks("score", "mediconfusion", replies).out
    assert state(medtasks("data", "list")) == "yes"


NAME = "multimedeval_ward_rounds"


@pytest.fixture
def folder(tmp_path):
    return ward_rounds(tmp_path)


def ward_rounds(tmp_path):
    path = tmp_path / "Ward rounds"
    path.mkdir()
    samples = [
        {"question": "Which drug?", "answer": "Aspirin", "options": ["Insulin", "Aspirin"]}
    ] * 3
    (path / "dataset.json").write_text(
        json.dumps({"taskType": "QA", "modality": "Text", "samples": samples})
    )
    return path


def listed(ran):
    return [line.split() for line in ran.out.splitlines() if line.startswith(NAME)]


@pytest.fixture
def from_folder(medtasks, folder):
    """Prepare the folder; return the lines that were printed."""
    ran = medtasks("data", "prepare", "--from-folder", folder)
    assert (ran.code, ran.err) == (0, "")
    return ran.out.splitlines()


def test_a_folder_is_prepared_with_a_task(medtasks, from_folder):
    prepared, run, access = from_folder

    assert prepared.startswith(f"Prepared {NAME}: 3 questions, 0 images, fingerprint ")
    assert (
        run
        == f"Run it with 'lmms_eval --tasks {NAME}'; the task is in {own_tasks_folder() / f'{NAME}.yaml'}"
    )
    assert "credentialed: no judge on another machine may see it" in access
    assert NAME in medtasks("tasks").out


def test_a_prepared_folder_is_listed_with_its_source(medtasks, from_folder, folder):
    assert listed(medtasks("data", "list")) == [
        [NAME, "yes", "credentialed", "3", "from", *str(folder).split()]
    ]
    shown = medtasks("data", "list", NAME).out
    assert f"source:   {folder} at local" in shown
    assert "licence:  of its owner" in shown


def test_a_prepared_folder_is_verified(medtasks, from_folder):
    assert medtasks("data", "verify", NAME).out.startswith(
        f"{NAME} is as prepared: 3 questions, complete"
    )


@pytest.fixture
def public(medtasks, folder):
    """Prepare the folder as public data."""
    assert medtasks("data", "prepare", "--from-folder", folder, "--access", "public").code == 0


def test_a_prepared_folder_is_prepared_again_by_its_name(medtasks, public):
    first = Manifest.read(dataset_folder(NAME))
    assert medtasks("data", "prepare", NAME).code == 0
    assert Manifest.read(dataset_folder(NAME)) == first


def test_a_folder_that_was_moved_is_named_with_source(
    medtasks, fails, public, folder, tmp_path
):
    shutil.move(folder, tmp_path / "moved")
    moved = (
        f"'{NAME}' came from {folder}, which is not there; give its new location with --source"
    )

    fails(["data", "prepare", NAME], moved)
    assert medtasks("data", "prepare", NAME, "--source", tmp_path / "moved").code == 0

    assert Manifest.read(dataset_folder(NAME)).source == str(tmp_path / "moved")


def test_a_damaged_dataset_is_credentialed_until_it_is_prepared_again(
    medtasks, fails, public, folder
):
    (dataset_folder(NAME) / "manifest.json").write_text("{")

    assert listed(medtasks("data", "list"))[0][1:3] == ["damaged", "credentialed"]
    fails(["data", "prepare", NAME], "give its new location with --source")
    assert medtasks("data", "prepare", "--from-folder", folder, "--access", "public").code == 0


def test_a_folder_is_prepared_under_another_name(medtasks, folder):
    ran = medtasks(
        *("data", "prepare", "--from-folder", folder, "--name", "rounds", "--access", "public")
    )

    assert ran.out.startswith("Prepared multimedeval_rounds: ")
    assert "credentialed" not in ran.out
    assert Manifest.read(dataset_folder("multimedeval_rounds")).access == "public"


@each_row(
    "arguments, complaint",
    [
        ([], "give the NAME of a dataset"),
        (["mediconfusion", "--from-folder", "FOLDER"], "give the NAME of a dataset"),
        (
            ["--from-folder", "FOLDER", "--source", "FOLDER"],
            "--source are for published datasets",
        ),
        (
            ["mediconfusion", "medheval", "--source", "FOLDER"],
            "--source are for published datasets, one NAME at a time",
        ),
        (
            ["mediconfusion", "medheval", "--images", "slake=FOLDER", "--allow-changed"],
            "--images and --allow-changed are",
        ),
        (["mediconfusion", "--name", "x"], "are for --from-folder"),
        (["mediconfusion", "--images", "slake=FOLDER"], "is for the sets of MedHEval"),
        (["mediconfusion", "--allow-changed"], "is for the sets of MedHEval"),
        (
            ["medheval_visual_vqa", "--images", "slake=a", "--images", "slake=b"],
            "--images names slake twice",
        ),
        (["--from-folder", "FOLDER", "--access", "private"], "public"),
    ],
)
def test_what_does_not_go_together(medtasks, folder, arguments, complaint):
    ran = medtasks(
        "data",
        "prepare",
        *(folder if argument == "FOLDER" else argument for argument in arguments),
    )
    assert ran.code == 2
    assert complaint in " ".join(ran.err.replace("│", " ").split())
    assert not dataset_folder(NAME).exists()


@pytest.fixture(params=[0o022, 0o000])
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def write_question(folder, image):
    samples = [{"question": "Which?", "answer": "one", "images": [image]}]
    (folder / "dataset.json").write_text(
        json.dumps({"taskType": "VQA", "modality": "X", "samples": samples})
    )


def modes(folder):
    """Return which kinds of files there are, by what the group and others may do."""
    return {stat.S_IMODE(path.lstat().st_mode) & 0o077 for path in (folder, *folder.rglob("*"))}


DONE = "linear: 16 bits scaled from 0..65535 (1)"


def write_deep_image(folder):
    """Write a question on an image of 16 bits."""
    deep = Image.linear_gradient("L").convert("I;16").point(lambda value: value * 257)
    deep.save(folder / "a.png")
    write_question(folder, "a.png")


def test_what_is_done_with_images_is_told(medtasks, folder):
    write_deep_image(folder)

    ran = medtasks("data", "prepare", "--from-folder", folder)

    assert (ran.code, ran.out.splitlines()[1]) == (
        0,
        f"Models see its images by the rule {DONE}",
    )
    assert f"  images:   {DONE}" in medtasks("data", "list", NAME).out.splitlines()


def test_credentialed_files_are_their_owners_alone(medtasks, folder, umask):
    write_deep_image(folder)
    medtasks("data", "prepare", "--from-folder", folder)

    assert medtasks("data", "select", NAME, "--as", "rounds_part").code == 0

    for path in (dataset_folder(NAME), dataset_folder("rounds_part"), own_tasks_folder()):
        assert modes(path) == {0}, path
    assert os.umask(umask) == umask
    assert "chmod" not in medtasks("data", "verify", NAME).out


def test_verify_says_how_to_close_credentialed_files(medtasks, folder, umask):
    write_deep_image(folder)
    medtasks("data", "prepare", "--from-folder", folder)
    for path in (dataset_folder(NAME), *dataset_folder(NAME).rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)

    ran = medtasks("data", "verify", NAME)

    command = f"chmod -R go= {dataset_folder(NAME)}"
    assert (
        f"other users of this machine can read {dataset_folder(NAME)}; run: {command}\n"
        in ran.out
    )
    subprocess.run(command, shell=True, check=True)
    assert "chmod" not in medtasks("data", "verify", NAME).out


def test_public_files_have_the_modes_of_the_user(medtasks, folder, umask):
    write_deep_image(folder)
    command = [
        "data",
        "prepare",
        "--from-folder",
        folder,
        "--name",
        "open",
        "--access",
        "public",
    ]

    assert medtasks(*command).code == 0

    assert modes(dataset_folder("multimedeval_open")) == {0o077 & ~umask, 0o066 & ~umask}


@each_row("kind", ["..", "absolute", "through another", "link", "linked folder", "prepared"])
def test_images_from_elsewhere_are_not_prepared(kind, medtasks, fails, tmp_path):
    folder = ward_rounds(tmp_path)
    secret = tmp_path / "secret"
    secret.mkdir()
    (folder / "imgs").mkdir()
    Image.new("L", (6, 4)).save(secret / "s.png")
    (folder / "link.png").symlink_to(secret / "s.png")
    (folder / "linked").symlink_to(secret)
    names = {"..": "../secret/s.png", "absolute": str(secret / "s.png"), "link": "link.png"}
    names |= {"through another": "imgs/../../secret/s.png", "linked folder": "linked/s.png"}
    if kind == "prepared":  # a folder that holds MEDTASKS_HOME has credentialed images below it
        write_question(secret, "s.png")
        assert medtasks("data", "prepare", "--from-folder", secret).code == 0
        (image,) = dataset_folder("multimedeval_secret").rglob("*.png")
        folder = dataset_folder("").parent
        names[kind] = str(image.relative_to(folder))
    write_question(folder, names[kind])

    options = ["--name", "copied", "--access", "public", "--allow-incomplete"]
    command = ["data", "prepare", "--from-folder", folder, *options]

    cause = f"it is outside of {folder} or in a prepared dataset"
    fails(command, f"dataset.json sample 1: its image {names[kind]} cannot be read ({cause}")
    assert not dataset_folder("multimedeval_copied").exists()


@pytest.fixture
def own_tasks(from_folder):
    """The folder of the user's task files, with a function of theirs."""
    tasks = own_tasks_folder()
    (tasks / "x.yaml").write_text("task: x\nprocess_docs: !function x.docs\n")
    (tasks / "x.py").write_text("")
    return tasks


def test_task_files_that_others_may_read_are_used(medtasks, own_tasks):
    (own_tasks / "gone").symlink_to("nowhere")
    assert NAME in medtasks("tasks").out
    own_tasks.chmod(0o755)
    assert NAME in medtasks("tasks").out


@each_row("name, mode", [("", 0o777), ("", 0o707), ("x.yaml", 0o666), ("x.py", 0o646)])
def test_task_files_that_others_may_have_written_are_refused(
    medtasks, fails, own_tasks, name, mode
):
    (own_tasks / name).chmod(mode)

    ran = fails(
        ["tasks"],
        f"{own_tasks / name} is another user's or writable by others",
        f"chmod -R go-w {own_tasks}",
    )

    subprocess.run(ran.err.split("then run: ")[1], shell=True, check=True)
    assert NAME in medtasks("tasks").out


def test_select_lists_modalities_and_labels_of_each_group(medtasks, home, tmp_path):
    base = tiny_gmai.rows(1)[0]
    groups = [
        ("Urology", "CT", "kidney"),
        ("Urology", "CT", "bladder"),
        ("Urology", "MR", "kidney"),
        ("None", "CT", "bone"),
    ]
    rows = []
    for number, (department, modality, keyword) in enumerate(groups):
        columns = {"department": department, "modality": modality, "category": keyword}
        rows.append({**base, **columns, "index": str(number), "image": tiny_gmai.png(number)})

    source = tiny_gmai.write(
        tmp_path / "source" / "GMAI-MMBench_VAL.tsv", rows, tiny_gmai.COLUMNS
    ).parent
    medtasks(
        "data",
        "prepare",
        "gmai_mmbench_val",
        "--source",
        source,
        "--allow-changed",
        "--allow-incomplete",
    )

    lines = [
        re.findall(r"[\w ]*\w", line)
        for line in medtasks("data", "select", "gmai_mmbench", "--list").out.splitlines()
    ]
    lines = [[cell.strip() for cell in line] for line in lines]

    assert ["department", "questions", "modalities", "labels"] in lines
    assert ["Urology", "3", "2", "2"] in lines
    assert ["None", "1", "1", "1"] in lines
    assert ["modality", "questions", "labels"] in lines
    assert ["CT", "3", "3"] in lines
