"""Shards joined against an undisturbed run of everything, and what is not joined."""

import contextlib
import json
import re
import shutil

import pytest

from medtasks.errors import MedTasksError
from medtasks.runs.run_manifest import read_manifests
from medtasks.runs.shard_runs import read_shards

from .. import tiny_multimedeval
from ..lmms.conftest import GENERAL_HOOKS, GENERAL_YAML, TWO_CHOICE_YAML
from ..recorded_runs import medtasks, record
from ..tables import each_row

pytestmark = pytest.mark.slow

TASKS = "mediconfusion_all,mediconfusion_gd_rotated,both"
PLACES = r" at 0x[0-9a-f]+|home_\w+"  # in memory, and on the machine
SHORT = ("--gen_kwargs", "max_new_tokens=8")
OWN = (
    "mediconfusion",
    "mediconfusion_gd",
    "mediconfusion_ps",
    "mediconfusion_gd_rotated",
    "many",
    "few",
)
TEXT_YAML = TWO_CHOICE_YAML.replace("images.images", "images.no_images").replace(
    "image_root: IMAGES, ", ""
)
BOTH_YAML = """\
group: both
task: [many, few]
aggregate_metric_list:
  - {metric: accuracy, aggregation: mean, weight_by_size: true}
"""


@pytest.fixture(scope="module")
def folder(sample_home, tmp_path_factory):
    """Whole runs: ``one`` of everything, and ``1`` to ``3`` of its shards; tests must not change them."""
    place = tmp_path_factory.mktemp("shards")
    own = place / "own"
    own.mkdir()
    (own / "both.yaml").write_text(BOTH_YAML)
    for task, count in (("many", 10), ("few", 2)):
        rows = [
            {"question": f"Is {n} odd?", "options": ["yes", "no"], "answer": "BA"[n % 2]}
            for n in range(count)
        ]
        (own / f"{task}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        text = TEXT_YAML.replace("task: sides", f"task: {task}")
        (own / f"{task}.yaml").write_text(
            text.replace("questions.jsonl", str(own / f"{task}.jsonl"))
        )
    for name in ("one", "1", "2", "3"):
        home = shutil.copytree(sample_home, place / f"home_{name}")
        shard = ["--shard", f"{name}/3"] if name != "one" else []
        record(home, place / name, TASKS, "--include_path", own, *SHORT, *shard)
    return place


@pytest.fixture
def shards(folder, tmp_path):
    """Copies of the shards' folders, for tests that change them."""
    return [shutil.copytree(folder / str(index), tmp_path / str(index)) for index in (1, 2, 3)]


@pytest.fixture
def merge(folder, tmp_path):
    """Merge shards of our own tasks; where that is refused with a message, nothing is written."""

    def joined(shards, refused="", own=folder / "own"):
        with (
            pytest.raises(MedTasksError, match=refused) if refused else contextlib.nullcontext()
        ):
            medtasks("merge", tmp_path / "all", *shards, "--include_path", own)
        assert (tmp_path / "all").exists() != bool(refused)
        return tmp_path / "all"

    return joined


def results_of(run):
    (path,) = run.rglob("*_results.json")
    return json.loads(path.read_text())


def samples_of(run, task):
    (path,) = run.rglob(f"*_samples_{task}.jsonl")
    return path.read_bytes()


def without_group_errors(results):
    """Leave out the errors that the harness gives to a group; a report computes its own."""
    for column in ("results", "groups"):
        for name, row in results[column].items():
            if name in results["groups"]:
                results[column][name] = {
                    key: value for key, value in row.items() if "_stderr" not in key
                }
    return results


def check_equal(first, second):
    """Two runs left the same samples to the byte, and the same results to the last digit."""
    for task in OWN:
        assert samples_of(first, task) == samples_of(second, task)
    names = (
        "results",
        "groups",
        "group_subtasks",
        "versions",
        "n-shot",
        "higher_is_better",
        "n-samples",
    )
    for name in (*names, "configs"):
        contents = [
            json.dumps(without_group_errors(results_of(run))[name], sort_keys=True)
            for run in (first, second)
        ]
        assert re.sub(PLACES, "", contents[0]) == re.sub(PLACES, "", contents[1]), name


def changed(folder, name, change):
    (path,) = folder.rglob(f"*{name}")
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_shards_are_one_run_to_the_last_digit(folder, sample, merge, capsys, tmp_path):
    merged_run = merge([folder / "3", folder / "1", folder / "2"])
    check_equal(folder / "one", merged_run)
    (manifest,), (single,) = read_manifests(merged_run), read_manifests(folder / "one")
    assert (manifest.standing, manifest.shard, len(manifest.merged)) == ("finished", None, 3)
    assert manifest.tasks.keys() == single.tasks.keys()
    for name, whole in single.tasks.items():
        merged = manifest.tasks[name]
        assert (merged.fingerprint, merged.counts) == (whole.fingerprint, whole.counts)
        assert (merged_run / merged.results).is_file()
        assert (merged_run / merged.samples).is_file()
    medtasks("report", merged_run, "--json", tmp_path / "report.json")
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["missing"] == {}
    assert [
        task["name"] for task in report["tasks"] if task["answered"] != task["documents"]
    ] == []
    # A shard says that it is one.
    content = results_of(folder / "2")
    assert all(row["alias"].endswith(" [SHARD 2/3]") for row in content["results"].values())
    assert content["groups"]["mediconfusion_all"]["alias"] == "mediconfusion_all [SHARD 2/3]"
    manifests = [read_manifests(folder / name)[0] for name in ("1", "2", "3")]
    assert [(run.standing, str(run.shard)) for run in manifests] == [
        ("finished", f"{n}/3") for n in (1, 2, 3)
    ]
    rows = {name: record.rows for name, record in manifests[1].tasks.items()}
    assert rows == {task: counts["effective"] for task, counts in content["n-samples"].items()}
    assert rows["mediconfusion"] == rows["mediconfusion_gd"] == 10
    assert [
        json.loads(line)["doc_id"] for line in samples_of(folder / "2", "many").splitlines()
    ] == [3, 4, 5, 6]
    rows = [manifest.tasks["few"].rows for manifest in manifests]
    assert sorted(rows) == [0, 1, 1]  # of two
    empty = str(1 + rows.index(0))
    assert results_of(folder / empty)["results"]["few"] == {
        "alias": f" - few [SHARD {empty}/3]"
    }
    medtasks("report", folder / empty, "--html", tmp_path / "page.html")
    printed = capsys.readouterr().out
    assert f"missing: few: Shard {empty}/3 has none of its rows." in printed
    assert f"This is shard {empty}/3 of a run" in printed


def test_a_shard_without_results_is_missing_until_it_is_repeated(
    folder, shards, merge, tmp_path, monkeypatch
):
    """The journal answers what was asked before, and the folder holds what both runs left."""
    home = shutil.copytree(folder / "home_2", tmp_path / "home")
    monkeypatch.setenv("MEDTASKS_HOME", str(home))
    (results,) = shards[1].rglob("*_results.json")
    results.unlink()
    changed(shards[1], "_run.json", lambda run: run.update(state="interrupted"))
    journals = {path: path.read_bytes() for path in home.rglob("journal/**/*.jsonl")}
    merge(shards, r"these are missing: 2/3; of 2/3, .* no complete run of it")
    record(home, shards[1], TASKS, "--include_path", folder / "own", *SHORT, "--shard", "2/3")
    assert (
        journals == {path: path.read_bytes() for path in home.rglob("journal/**/*.jsonl")} != {}
    )
    check_equal(folder / "one", merge(shards))


def test_copies_of_an_earlier_run_stay_copies(folder, sample, shards, merge):
    (path,) = shards[0].rglob("*_samples_many.jsonl")
    lines = [
        json.loads(line) | {"reply_of": "an earlier run"}
        for line in path.read_text().splitlines()
    ]
    path.write_text("".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines))
    (manifest,) = read_manifests(merge([*shards, folder / "1"]))
    copies = len({line["doc_id"] for line in lines})
    assert {
        name: record.copied_samples
        for name, record in manifest.tasks.items()
        if record.copied_samples
    } == {"many": copies}


def test_torn_samples_of_a_newer_run_do_not_count(shards):
    (manifest,) = read_manifests(shards[0])
    tasks = {
        name: record.model_copy(update={"results": record.results.replace("20", "new_20", 1)})
        for name, record in manifest.tasks.items()
    }
    newer = manifest.model_copy(update={"started": "2099-01-01T00:00:00+00:00", "tasks": tasks})
    newer.write(shards[0] / "20990101_000000_000000Z_run.json")
    (results,) = shards[0].rglob("*_results.json")
    for path in [results, *shards[0].rglob("*_samples_*")]:
        shutil.copyfile(path, path.with_name(f"new_{path.name}"))
    torn = results.with_name(
        f"new_{results.name.replace('_results.json', '_samples_mediconfusion.jsonl')}"
    )
    torn.write_bytes(torn.read_bytes()[:-200])
    assert read_shards(shards)[0].manifest.started == manifest.started
    shutil.copyfile(torn.with_name(torn.name.removeprefix("new_")), torn)
    assert read_shards(shards)[0].manifest.started == newer.started


@each_row(
    "name, change, cause",
    [
        (
            "_run.json",
            lambda run: run["model"].update(fingerprint="sha256:other"),
            "fingerprint of the model",
        ),
        (
            "_run.json",
            lambda run: run["tasks"]["mediconfusion"].update(fingerprint="f"),
            "data of mediconfusion ",
        ),
        (
            "_run.json",
            lambda run: run["versions"].update(torch="1.0"),
            r"version of torch \('.*' and '1.0'\)",
        ),
        (
            "_run.json",
            lambda run: run["options"].update(gen_kwargs="temperature=1"),
            "--gen_kwargs",
        ),
        (
            "_run.json",
            lambda run: run["options"].update(model_args="seed=1"),
            "--model_args seed",
        ),
        (
            "_results.json",
            lambda results: results["versions"].update(mediconfusion=9),
            "version of mediconfusion",
        ),
        (
            "_results.json",
            lambda results: results["configs"]["many"].update(doc_to_text="x"),
            "settings of many",
        ),
    ],
)
def test_shards_that_differ_are_not_joined(folder, tmp_path, name, change, cause):
    third = shutil.copytree(folder / "3", tmp_path / "3")
    changed(third, name, change)
    with pytest.raises(
        MedTasksError, match=f"shard 1/3 in .* and shard 3/3 in .* differ in {cause}"
    ):
        read_shards([folder / "1", folder / "2", third])


def test_shards_of_other_machines_are_joined(shards):
    def elsewhere(run):
        run["options"].update(
            model_args="base_url=http://other/v1,journal=x", batch_size="1", include_path="x"
        )
        run["settings"].update(
            MEDTASKS_TRUSTED_MODEL="http://other/v1", MEDTASKS_SHARD="2/3", MEDTASKS_HOME="***"
        )
        run["hardware"].update(cores=99)

    changed(shards[1], "_run.json", elsewhere)
    changed(
        shards[1],
        "_results.json",
        lambda run: run["configs"]["many"].update(dataset_path="/elsewhere"),
    )

    assert [run.shard.index for run in read_shards(shards)] == [1, 2, 3]


def refuse(folders, sentence):
    with pytest.raises(MedTasksError, match=sentence):
        read_shards(folders)


def number(shard, **numbers):
    changed(shard, "_run.json", lambda run: run["shard"].update(numbers))


def test_missing_shards_are_named(shards):
    refuse([shards[1]], r"of 3 shards these are missing: 1/3 and 3/3; run each")


def test_a_folder_without_a_shard_is_refused(folder, shards, tmp_path):
    refuse([*shards, folder / "one"], "one holds no run of a shard")
    refuse([tmp_path / "nowhere"], r"there is no folder .*nowhere")


def test_shards_of_different_numbers_of_parts_are_refused(shards):
    number(shards[2], count=4)

    refuse(shards, r"1/3 and 3/4 are shards of different numbers of parts")


def test_a_shard_given_twice_counts_once(shards, tmp_path):
    again = shutil.copytree(shards[1], tmp_path / "again")

    assert [run.folder for run in read_shards([*shards, again])] == shards


def test_a_shard_given_twice_with_different_samples_is_refused(shards, tmp_path):
    again = shutil.copytree(shards[1], tmp_path / "again")
    (samples,) = again.rglob("*_samples_many.jsonl")
    samples.write_text(samples.read_text().replace('"target": "A"', '"target": "B"'))
    refuse(
        [*shards, again], r"shard 2/3 is in .* and in .*again with different samples of many"
    )


def test_shards_are_joined_in_the_order_of_their_numbers(shards):
    number(shards[2], index=2)
    number(shards[1], index=3)

    assert [run.folder for run in read_shards(shards)] == [
        shards[0],
        shards[2],
        shards[1],
    ]


def test_rows_in_no_shard_are_named(shards):
    number(shards[0], index=1, count=1)
    refuse(shards[:1], r"rows 1 of few are in no shard")


def test_results_that_the_samples_do_not_give_are_refused(shards, sample, merge):
    (results,) = shards[1].rglob("*_results.json")
    recorded = results.read_text()
    for task in ("mediconfusion", "many"):

        def lower(content, task=task):
            row = content["results"][task]
            row[next(key for key in row if "," in key)] += 0.125

        changed(shards[1], "_results.json", lower)
        merge(shards, f"the samples of {task} do not give the results that its runs recorded")
        results.write_text(recorded)


def test_samples_that_were_edited_are_refused(shards, sample, merge):
    (samples,) = shards[1].rglob("*_samples_many.jsonl")
    text = samples.read_text()
    for before, after, message in (
        ('"score": {', '"scores": {', "the samples of many do not give the results"),
        ('"sample": "3"', '"sample": "8"', "line 1 answers document '8', but row 3 .* is '3'"),
    ):
        assert before in text
        samples.write_text(text.replace(before, after))
        merge(shards, message)


def test_a_folder_with_a_run_is_not_merged_into(shards, sample):
    with pytest.raises(MedTasksError, match="holds a run already"):
        medtasks("merge", shards[0], *shards)


def test_other_models_for_metrics_than_here_are_refused(shards, sample, merge, monkeypatch):
    monkeypatch.setenv("MEDTASKS_METRICS_DTYPE", "float16")
    merge(shards, r"MEDTASKS_METRICS_DTYPE \(None there\) differ from those of shard 1/3")


def test_other_code_than_here_is_refused(shards, sample, merge):
    for shard in shards:
        changed(shard, "_run.json", lambda run: run["versions"].update(lmms_eval="0.7.2"))
    merge(shards, r"lmms_eval \(0.7.2 there\) differ")


def test_withheld_replies_are_read_from_where_they_were_saved(merge, tmp_path, monkeypatch):
    """Of credentialed reports: ids are hashed, and the metrics need texts that no file of the run holds."""
    task, home = (
        "multimedeval_mimic_cxr_report",
        tiny_multimedeval.prepare_all(tmp_path / "home", ["mimic_cxr_report"]),
    )
    monkeypatch.setenv("MEDTASKS_HOME", str(home))
    shards = [tmp_path / "1", tmp_path / "2"]
    record(home, tmp_path / "one", task, *SHORT)
    for shard in shards:
        record(home, shard, task, *SHORT, "--shard", f"{shard.name}/2")
    rows = [
        json.dumps(results_of(run)["results"][task])
        for run in (tmp_path / "one", merge(shards))
    ]
    assert rows[0] == rows[1]
    assert "rouge_l," in rows[0]
    shutil.rmtree(tmp_path / "all")
    (home / "replies").rename(home / "elsewhere")
    merge(
        shards,
        "holds no reply, because its dataset is credentialed, .* copy the folder 'replies'",
    )
    (home / "elsewhere").rename(home / "replies")
    for saved in (home / "replies").rglob("*.jsonl"):
        saved.write_text(re.sub('"reply": ".*"', '"reply": "other words"', saved.read_text()))
    merge(shards, f"row 0 of {task} has other texts here than in the run")


def test_shards_of_tasks_that_are_not_ours(
    folder, shards, sample, sample_home, merge, tmp_path
):
    own = shutil.copytree(folder / "own", tmp_path / "own")
    (own / "questions.jsonl").write_text('{"question": "Say A.", "answer": "A"}')
    (own / "shouting.yaml").write_text(
        GENERAL_YAML.replace("questions.jsonl", str(own / "questions.jsonl"))
    )
    (own / "shouting.py").write_text(GENERAL_HOOKS)
    record(
        sample_home, tmp_path / "foreign", "shouting", "--include_path", own, "--shard", "1/1"
    )
    (manifest,) = read_manifests(tmp_path / "foreign")
    assert "'medtasks merge' cannot join shards of shouting" in "".join(
        notice.sentence for notice in manifest.notices
    )
    why = "is scored by shouting.process_results, which is no hook of medtasks, so that its shards cannot be merged"
    merge([tmp_path / "foreign"], f"'shouting' {why}; run it once without --shard", own)
    few = (own / "few.yaml").read_text()
    listed = "[{metric: accuracy, aggregation: mean, higher_is_better: true}]"
    (own / "few.yaml").write_text(
        few.replace("!function medtasks.hooks.choice.METRIC_LIST", listed)
    )
    merge(shards, "'few' has metrics that are not those of medtasks, so that its shards", own)


def test_code_of_a_folder_named_by_results_does_not_run(folder, shards, sample, tmp_path):
    theirs = shutil.copytree(folder / "own", shards[0] / ".x")
    (theirs / "few.yaml").write_text(
        (theirs / "few.yaml").read_text() + "process_docs: !function evil.docs\n"
    )
    (theirs / "evil.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w')\ndef docs(rows):\n    return rows\n"
    )
    for shard in shards:
        changed(
            shard,
            "_results.json",
            lambda run: run["config"]["resolved_cli_args"].update(include_path=".x"),
        )
        changed(shard, "_run.json", lambda run: run["options"].update(include_path=".x"))
    with pytest.raises(MedTasksError, match=r"task 'few'.* needs --include_path FOLDER"):
        medtasks("merge", tmp_path / "all", *shards)
    assert not (tmp_path / "ran").exists()
    with contextlib.suppress(MedTasksError):
        medtasks("merge", tmp_path / "all", *shards, "--include_path", theirs)
    assert (tmp_path / "ran").exists()  # it is code that would run
