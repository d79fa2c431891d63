"""``medtasks data prepare`` of several datasets, tasks, groups and tags: plan, questions, and the last command."""

import shlex
from dataclasses import replace
from types import SimpleNamespace

import pytest

from medtasks.cli import prepare_command
from medtasks.data.catalogue import CATALOGUE
from medtasks.data.prepare import prepare_dataset
from medtasks.data.prepare.physionet import login_of
from medtasks.data.privacy import PHYSIONET_VARIABLES
from medtasks.errors import SourceError
from medtasks.home import dataset_folder

from ..multimedeval_sources import WRITERS
from ..tables import each_row

LARGE = "14,257.5 MB in all, as stated for 6 of 9 datasets"


class Preparing:
    """Stand-in for downloads: sources in miniature, or a failure; ``asked`` holds names and options."""

    def __init__(self, folder):
        self.folder, self.failing, self.asked = folder, set(), []
        self.prepare = prepare_dataset.prepare

    def __call__(self, name, options):
        self.asked.append((name, options))
        key = name.removeprefix("multimedeval_")
        if name in self.failing or key not in WRITERS:
            raise SourceError("no answer")
        WRITERS[key](self.folder / name)
        return self.prepare(
            name, replace(options, source=self.folder / name, allow_incomplete=True)
        )

    @property
    def names(self):
        return [name for name, _ in self.asked]


@pytest.fixture(autouse=True)
def preparing(monkeypatch, tmp_path):
    for name in PHYSIONET_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    preparing = Preparing(tmp_path / "published")
    monkeypatch.setattr(prepare_dataset, "prepare", preparing)
    return preparing


@pytest.fixture
def terminal(monkeypatch):
    """Standard input is a terminal."""
    monkeypatch.setattr(
        prepare_command, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True))
    )


def prepare(medtasks, *names, stdin=""):
    return medtasks("data", "prepare", *names, stdin=stdin)


def plan_of(ran):
    """The plan's cells by dataset."""
    lines = ran.out.splitlines()
    assert lines[0].split() == ["dataset", "prepared", "access", "size", "to", "do"]
    rows = {}
    for line in lines[1:]:
        name, *cells = [cell for cell in line.split("  ") if cell]
        if name not in CATALOGUE:
            break
        rows[name] = [cell.strip() for cell in cells]
    return rows


def commands_of(ran):
    """The words of each command in the line at the end."""
    _, _, line = ran.out.partition("For the rest (words in capitals are yours to replace):\n")
    words = shlex.split(line.replace("\\\n", ""))
    commands = [[]]
    for word in words:
        if word == "&&":
            commands.append([])
        else:
            commands[-1].append(word)
    return [" ".join(command) for command in commands]


@each_row(
    "name, datasets",
    [
        ("mediconfusion", ["mediconfusion"]),
        ("mediconfusion_gd_blind", ["mediconfusion"]),
        ("mediconfusion_sanity", ["mediconfusion"]),
        ("multimedeval_medqa_5shot", ["multimedeval_medqa"]),
        ("medevalkit_vqa_rad", ["multimedeval_vqa_rad"]),
        (
            "multimedeval_report",
            ["multimedeval_mimic_iii_summary", "multimedeval_mimic_cxr_report"],
        ),
        ("iu_xray", ["iu_xray_report"]),
        ("medheval", [name for name in CATALOGUE if name.startswith("medheval_")]),
    ],
)
def test_datasets_of_names(name, datasets):
    assert [info.name for info in prepare_command.datasets_of(name)] == datasets


@each_row(
    "name, near", [("medevalkt", "medevalkit"), ("multimedeval_reprot", "multimedeval_report")]
)
def test_an_unknown_name_costs_nothing_and_is_told_the_nearest(
    medtasks, fails, preparing, name, near
):
    fails(
        ["data", "prepare", "multimedeval_medqa", name],
        f"unknown dataset '{name}'; did you mean '{near}'?",
    )
    assert preparing.asked == []


THREE = ["multimedeval_medqa", "multimedeval_pubmedqa", "multimedeval_octmnist"]


@pytest.fixture
def second_fails(fails, preparing):
    """Prepare three datasets, of which the second cannot be downloaded, and a task of the first."""
    preparing.failing = {THREE[1]}
    return fails(
        ["data", "prepare", *THREE, "multimedeval_medqa_5shot"],
        "1 of the datasets above could not be prepared",
    )


def test_the_plan_says_what_is_to_be_downloaded(second_fails):
    assert plan_of(second_fails) == {
        "multimedeval_medqa": ["no", "public", "not stated", "download"],
        "multimedeval_pubmedqa": ["no", "public", "not stated", "download"],
        "multimedeval_octmnist": ["no", "public", "54.9 MB", "download"],
    }
    sentence = "To download: 54.9 MB in all, as stated for 1 of 3 datasets"
    assert sentence in second_fails.out.splitlines()


def test_a_dataset_that_fails_does_not_stop_the_others(second_fails, preparing):
    assert preparing.names == THREE
    assert "not prepared: multimedeval_pubmedqa: no answer" in second_fails.out.splitlines()
    assert commands_of(second_fails) == ["medtasks data prepare multimedeval_pubmedqa"]
    assert [dataset_folder(name).exists() for name in THREE] == [True, False, True]


def test_what_is_prepared_stays(medtasks, preparing, monkeypatch):
    assert (
        prepare(medtasks, "multimedeval_medqa").code == 0
    )  # one dataset alone: neither plan nor question
    monkeypatch.setattr(prepare_command, "prepared_state", lambda _: "yes")
    preparing.asked.clear()
    ran = prepare(medtasks, "multimedeval_medqa", "multimedeval_medqa_5shot")
    assert (ran.code, preparing.asked) == (0, [])
    assert plan_of(ran) == {"multimedeval_medqa": ["yes", "public", "not stated", "nothing"]}
    assert "To download" not in ran.out


def test_a_part_comes_after_the_whole_and_is_downloaded_with_it(
    medtasks, preparing, monkeypatch
):
    names = ["medevalkit_slake_en", "medevalkit_slake"]
    ran = prepare(medtasks, *names)
    assert preparing.names == names[::-1]
    assert "To download: 212.6 MB in all, as stated for 1 of 1 datasets" in ran.out
    assert (
        "To download: 212.6 MB in all"
        in prepare(medtasks, "medevalkit_slake_en", "medheval_visual_mm").out
    )
    monkeypatch.setattr(
        prepare_command,
        "prepared_state",
        lambda name: "yes" if name == "medevalkit_slake" else "no",
    )
    assert "To download" not in prepare(medtasks, *names).out


def test_a_large_download_needs_a_yes(medtasks, fails, preparing):
    ran = fails(
        ["data", "prepare", "medevalkit"], f"whether to download {LARGE}; add --yes to do so"
    )
    assert len(plan_of(ran)) == 9
    assert preparing.asked == []
    assert prepare(medtasks, "medevalkit", "--yes").code == 1
    assert preparing.names == list(plan_of(ran))


@each_row(
    "names, is_asked",
    [
        (["multimedeval_medqa", "multimedeval_pubmedqa"], False),  # texts of unstated size
        (["multimedeval_medqa", "multimedeval_path_vqa"], True),  # images of unstated size
        (["medevalkit_pmc_vqa", "medevalkit_slake"], False),
        (["medevalkit_pmc_vqa", "multimedeval_pad_ufes_20"], True),  # 5.8 GB together
        (["medevalkit_pmc_vqa_clean", "medheval_visual_mm"], True),
        (["medheval"], False),  # nothing can be downloaded
    ],
)
def test_what_is_asked_about(medtasks, preparing, terminal, names, is_asked):
    preparing.asked.clear()
    no = prepare(medtasks, *names, stdin="n\n")
    assert (no.out + no.err).count("Download? [y/N]") == is_asked
    assert (preparing.asked == []) == is_asked
    yes = prepare(medtasks, *names, stdin="y\n")
    assert (yes.out + yes.err).count("Download? [y/N]") == is_asked
    assert preparing.names[-len(plan_of(yes)) :] == list(plan_of(yes))
    assert no.code == 1 or not is_asked


@pytest.fixture
def nothing_arrives(fails, preparing, monkeypatch):
    """Prepare datasets of every kind of access, none of which can be downloaded."""
    monkeypatch.setattr(prepare_dataset, "get_token", lambda: None)
    preparing.failing = {*CATALOGUE}
    names = ["multimedeval_mednli", "medheval", "multimedeval_chestxray14", "gmai_mmbench_val"]
    return fails(
        ["data", "prepare", *names, "medevalkit_slake_en", "--allow-incomplete"],
        "10 of the datasets above could not be prepared",
    )


def test_the_plan_says_what_each_dataset_takes(nothing_arrives):
    plan = plan_of(nothing_arrives)
    assert plan["multimedeval_mednli"] == [
        "no",
        "credentialed",
        "not stated",
        "download with a PhysioNet login",
    ]
    assert plan["medheval_visual_mm"] == ["no", "public", "1.4 MB", "your copy, with --source"]
    assert plan["multimedeval_chestxray14"] == [
        "no",
        "gated",
        "not stated",
        "your copy, with --source",
    ]
    assert plan["gmai_mmbench_val"] == [
        "no",
        "gated",
        "9,340.0 MB",
        "accept its terms, then: hf auth login",
    ]


def test_the_rest_is_one_command(nothing_arrives):
    copies = " ".join(
        f"--images {key}=DIR" for key in ("slake", "vqa_rad", "iu_xray", "mimic_cxr")
    )
    again = "multimedeval_mednli gmai_mmbench_val medevalkit_slake_en"
    assert commands_of(nothing_arrives) == [
        f"medtasks data prepare {again} --allow-incomplete",
        f"medtasks data prepare medheval --source CLONE {copies} --allow-incomplete",
        "medtasks data prepare multimedeval_chestxray14 --source DIR --allow-incomplete",
    ]


@pytest.fixture
def login(monkeypatch):
    """A login of PhysioNet in the environment."""
    for name, value in zip(PHYSIONET_VARIABLES, ("amelie", "a password"), strict=True):
        monkeypatch.setenv(name, value)
    return login_of("amelie", "a password")


LOCKED = ["multimedeval_mednli", "multimedeval_vindr_mammo", "multimedeval_medqa"]


def test_a_download_of_unstated_size_needs_a_yes(fails, login):
    """These are mammograms."""
    fails(["data", "prepare", *LOCKED], "as stated for 0 of 3 datasets; add --yes")


def test_the_login_of_the_environment_is_used_and_not_shown(medtasks, login, preparing):
    ran = prepare(medtasks, *LOCKED, "--yes")

    asked = [(name, options.login) for name, options in preparing.asked]
    assert asked == [(name, login) for name in LOCKED]
    assert not [secret for secret in ("amelie", "a password") if secret in ran.out + ran.err]


def test_the_login_is_used_only_where_it_is_needed(medtasks, login, preparing):
    prepare(medtasks, "multimedeval_mednli")
    assert preparing.asked[-1][1].login == login
    prepare(medtasks, "multimedeval_medqa", "multimedeval_octmnist")
    assert preparing.asked[-1][1].login is None


@each_row(
    "typed, login",
    [("amelie\n", ("amelie", "hidden")), ("\n", None)],
)
def test_a_login_is_asked_for_at_a_terminal(
    medtasks, preparing, terminal, monkeypatch, typed, login
):
    monkeypatch.setattr(prepare_command, "getpass", lambda _: "hidden")
    preparing.asked.clear()
    ran = prepare(medtasks, "multimedeval_mednli", stdin=typed)
    assert "PhysioNet user name" in ran.out
    assert "hidden" not in ran.out + ran.err
    assert preparing.asked[0][1].login == (None if login is None else login_of(*login))
