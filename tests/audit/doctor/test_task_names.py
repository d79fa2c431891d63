"""Names that collide, and the user's own task files."""

import pytest

from medtasks.audit.doctor import task_names
from medtasks.audit.doctor.check_results import State
from medtasks.audit.doctor.task_names import collisions, foreign_names, own_files, own_names
from medtasks.home import own_tasks_folder

from ...tables import each_row
from .conftest import expect, only

OWN = "task: multimedeval_mine\nmetadata: {dataset: multimedeval_mine}\ndataset_path: !function a.b\n"


@pytest.fixture
def harness(tmp_path, monkeypatch):
    """A harness with these task files and no others."""
    tasks = tmp_path / "lmms_eval" / "tasks"
    tasks.mkdir(parents=True)
    monkeypatch.setattr(task_names, "harness_folder", lambda: tasks)

    def write(name, text):
        (tasks / name).parent.mkdir(parents=True, exist_ok=True)
        (tasks / name).write_text(text)
        return tasks / name

    return write


@pytest.fixture
def own(tmp_path):
    """Write one task file of the user's."""

    def write(name, text):
        path = own_tasks_folder() / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


def test_installed_harness_has_none_of_our_names(everything):
    expect(only(collisions(everything)), State.OK, f"names of ours ({len(own_names())})")


def test_own_names_hold_tasks_groups_and_included_tags():
    assert {"mediconfusion", "multimedeval", "multimedeval_qa", "multimedeval_extra"} <= own_names()
    assert "multimedeval_mine" not in own_names()


@each_row(
    "text, name",
    [
        ("task: mediconfusion\ndataset_path: x\n", "mediconfusion"),
        ("group: multimedeval\ntask:\n- a\n- b\n", "multimedeval"),
        ("task: a\ntag: multimedeval_qa\n", "multimedeval_qa"),
        ("task: a\ntag:\n- b\n- multimedeval_qa\n", "multimedeval_qa"),
        ("task: a\ngroup: [gmai_mmbench]\n", "gmai_mmbench"),
        ("'task': \"mediconfusion\"\n", "mediconfusion"),
        ("task: iu_xray_report\nclass: !function a.B\n", "iu_xray_report"),
        ("task: a\nprocess_results: !function utils.f\ntag: &t multimedeval_qa\n", "multimedeval_qa"),
    ],
)
def test_collision(harness, everything, text, name):
    harness("fine.yaml", "task: mme\n")
    path = harness("deep/er/taken.yaml", text)
    found = only(collisions(everything))
    assert (found.name, found.state) == (name, State.PROBLEM)
    assert str(path) in found.found
    assert str(path) in found.fix


@each_row(
    "text",
    [
        "task: mediconfusion_original\n",
        "task: my-mediconfusion\n",
        "task: a\ndescription: unlike mediconfusion\n",
        "# task: mediconfusion\ntask: a\n",
        "group: a\ntask: [mediconfusion]\n",  # selects ours and defines nothing
        "task: a\nlist: [mediconfusion]\n",
    ],
)
def test_mention_is_no_collision(harness, everything, text):
    harness("mention.yaml", text)
    assert only(collisions(everything)).state is State.OK


def test_tag_from_an_included_file(harness, everything):
    harness("_template", "tag: multimedeval_qa\n")
    path = harness("a.yaml", "include: _template\ntask: a\n")
    found = only(collisions(everything))
    assert (found.name, str(path) in found.found) == ("multimedeval_qa", True)


def test_file_of_the_harness_that_cannot_be_read_costs_nothing(harness, everything):
    harness("broken.yaml", "task: mediconfusion\n  broken: [\n")
    assert only(collisions(everything)).state is State.OK


def test_only_names_of_chosen_tasks(harness, scope):
    harness("taken.yaml", "task: mediconfusion\ntag: multimedeval_qa\n")
    assert [one.name for one in collisions(scope("mediconfusion_all")) if one.state is State.PROBLEM] == [
        "mediconfusion"
    ]
    assert [one.name for one in collisions(scope("multimedeval_qa")) if one.state is State.PROBLEM] == [
        "multimedeval_qa"
    ]
    assert only(collisions(scope("iu_xray_report"))).state is State.OK


def test_harness_without_tasks(monkeypatch, everything):
    monkeypatch.setattr(task_names, "harness_folder", lambda: None)
    expect(only(collisions(everything)), State.PROBLEM, fix="pip install")


def test_users_task_with_a_name_of_ours(harness, own, everything):
    path = own("mine.yaml", "task: mediconfusion\n")
    found = [one for one in collisions(everything) if one.state is State.PROBLEM]
    assert [(one.name, str(path) in one.found) for one in found] == [("mediconfusion", True)]


def test_users_task_with_a_name_of_the_harness(harness, own, everything):
    own("mine.yaml", OWN)
    harness("theirs.yaml", "task: multimedeval_mine\n")
    assert only(collisions(everything)).name == "multimedeval_mine"


def test_no_own_files():
    assert list(own_files()) == []


@each_row(
    "text, words",
    [
        ("task: a\nlist: [1, 2\nnext: 3\n", "is damaged in line 3"),
        ("task: a\n\tindented: 1\n", "is damaged in line 2"),
        ("", "is damaged"),
        ("task: [a, b]\n", "no 'group'"),
        ("include: gone_yaml\ntask: a\n", "gone_yaml, which does not exist"),
        ("include: bad.yaml\ntask: a\n", "is damaged"),
    ],
)
def test_malformed_own_file_is_named(own, text, words):
    path = own("bad.yaml", text)
    expect(only(own_files()), State.PROBLEM, str(path), words, fix=" ")


def test_own_file_that_is_no_text(own):
    own("bad.yaml", "").write_bytes(b"task: \xff\xfe\n")
    assert only(own_files()).state is State.PROBLEM


def test_own_file_whose_dataset_is_gone(own):
    path = own("mine.yaml", OWN)
    expect(only(own_files(), "mine"), State.WARNING, "'multimedeval_mine'", fix=str(path))


def test_own_file_with_its_dataset(own, sample):
    own("mine.yaml", OWN.replace("dataset: multimedeval_mine", "dataset: mediconfusion"))
    try:
        assert list(own_files()) == []
    finally:  # the sample's folder is everybody's
        (own_tasks_folder() / "mine.yaml").unlink()
        own_tasks_folder().rmdir()


def test_foreign_names(harness, scope):
    harness("mme.yaml", "task: mme\n")
    found = list(foreign_names(scope("mme", "mediconfusoin", "mediconfusion")))
    assert only(found, "mme").state is State.NOTE
    assert only(found, "mediconfusoin").state is State.PROBLEM
    assert "did you mean 'mediconfusion'?" in only(found, "mediconfusoin").found
    assert len(found) == 2


def test_foreign_tag_in_an_included_file(harness, scope):
    harness("_template", "tag: their_tag\n")
    harness("a.yaml", "include: _template\ntask: a\n")
    assert only(foreign_names(scope("their_tag"))).state is State.NOTE


def test_python_task_has_no_tags(harness, everything):
    harness("a.yaml", "task: a\nclass: b\ntag: multimedeval_qa\n")
    harness("b.yaml", "dataset_path: x\n")
    assert only(collisions(everything)).state is State.OK
