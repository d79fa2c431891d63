import csv
from collections import Counter
from pathlib import Path

import pytest
import yaml

import medtasks.report
from medtasks.report.published import _fits as fits
from medtasks.report.published import published_group_scores, published_of, published_scores
from medtasks.tasks.task_files import task_files

from ..conftest import reference_folder
from ..tables import tables_of

FOLDER = Path(medtasks.report.__file__).parent / "published_results"
MAPPING = yaml.safe_load((FOLDER / "mapping.yaml").read_text())
FILES = sorted(file.name for file in FOLDER.glob("*.csv"))
ROWS = {
    file: list(csv.DictReader((FOLDER / file).read_text(encoding="utf-8").splitlines()))
    for file in FILES
}


@pytest.fixture(scope="module")
def everything():
    return {
        task: [*published_scores(task), *published_group_scores(task)] for task in task_files()
    }


def test_the_figures_are_those_that_were_handed_over():
    handed_over = reference_folder("MEDTASKS_PUBLISHED", "published")
    assert [
        file
        for file in FILES
        if (FOLDER / file).read_bytes() != (handed_over / file).read_bytes()
    ] == []


def test_every_row_is_of_a_task_or_left_out_with_a_reason():
    for file in FILES:
        uses: Counter[tuple[str, ...]] = Counter()
        for entry in MAPPING["tables"]:
            for row in ROWS[file]:
                of_task = (
                    row.get(entry["by"]) in entry["tasks"]
                    and row.get(entry["metric"]) in entry["metrics"]
                )
                uses[tuple(row.values())] += fits(entry, file, row) and of_task
        for row in ROWS[file]:
            left_out = [entry for entry in MAPPING["left_out"] if fits(entry, file, row)]
            assert uses[tuple(row.values())] == 1 or left_out, (file, row)
            assert uses[tuple(row.values())] <= 1, (file, row)
            assert all(entry["why"].endswith(".") for entry in left_out)


def test_every_used_row_is_shown_once_for_each_of_its_tasks(everything):
    shown = Counter(
        (name, score.source, score.model, score.metric, score.group, score.printed)
        for name, scores in everything.items()
        for score in scores
    )
    expected: Counter[tuple[str, ...]] = Counter()
    for entry in MAPPING["tables"]:
        for row in ROWS[entry["file"]]:
            if any(fits(out, entry["file"], row) for out in MAPPING["left_out"]) or not fits(
                entry, entry["file"], row
            ):
                continue
            if row[entry["metric"]] in entry["metrics"]:
                for task in entry["tasks"].get(row[entry["by"]], ()):
                    metric = entry["metrics"][row[entry["metric"]]]
                    group = row[entry["group"]] if "group" in entry else ""
                    expected[
                        task, entry["source"], row["model"], metric, group, row[entry["value"]]
                    ] += 1
    assert shown == expected
    assert max(shown.values()) == 1
    assert sum(shown.values()) > 1000
    reported = [
        score
        for scores in everything.values()
        for score in scores
        if "(reported)" in score.model
    ]
    assert len(reported) > 60  # taken over from another paper
    assert all("Not comparable" in score.remark for score in reported)


def test_metrics_are_the_tasks_own_and_values_are_on_its_scale_best_first(everything):
    for task in sorted(
        {
            name
            for entry in MAPPING["tables"]
            for names in entry["tasks"].values()
            for name in names
        }
    ):
        entries = {entry["metric"]: entry for entry in task_files()[task].metric_list.resolve()}
        scores = [score for score in everything[task] if not score.group]
        order = [list(entries).index(score.metric) for score in scores]
        assert order == sorted(order) != [], task
        for metric in {score.metric for score in scores}:
            values = [score.value for score in scores if score.metric == metric]
            assert values == sorted(values, reverse=entries[metric]["higher_is_better"]), (
                task,
                metric,
            )
            assert metric.startswith("radcliq") or all(0 <= value <= 1 for value in values), (
                task,
                metric,
            )
        for score in scores:
            assert float(score.printed) in (
                pytest.approx(score.value),
                pytest.approx(100 * score.value),
            ), score


def test_every_remark_is_one_sentence_and_is_shown(everything):
    for entry in MAPPING["remarks"]:
        assert entry["remark"].endswith(".")
        assert "\n" not in entry["remark"]
        shown = [
            score
            for task, scores in everything.items()
            for score in scores
            if entry["remark"] in score.remark and entry.get("task", task) == task
        ]
        out = [left for left in MAPPING["left_out"] if left["file"] == entry["file"]]
        fitting = [row for row in ROWS[entry["file"]] if fits(entry, entry["file"], row)]
        used = {
            row["model"]
            for row in fitting
            if not any(fits(left, entry["file"], row) for left in out)
        }
        assert {score.model for score in shown} >= used, entry
        assert shown, entry
        if "task" in entry:  # it is not shown at another
            named = {
                same["task"] for same in MAPPING["remarks"] if same["remark"] == entry["remark"]
            }
            with_remark = {
                t
                for t, scores in everything.items()
                if any(entry["remark"] in s.remark for s in scores)
            }
            assert named == with_remark


def test_known_misprints_and_what_is_not_comparable_are_marked(everything):
    remarks = {}
    for task, scores in everything.items():
        for score in scores:
            remarks[task, score.model, f"{score.metric} {score.group}".strip()] = score.remark
    assert [
        row for row in tables_of(__file__)["remarks"] if row[-1] not in remarks[tuple(row[:3])]
    ] == []


WITHOUT = (
    *(
        "mediconfusion_blind",
        "mediconfusion_all",
        "multimedeval_octmnist_5shot",
        "multimedeval_pad_ufes_20_head",
    ),
    *(
        "multimedeval_pad_ufes_20_disjoint",
        "multimedeval_mimic_iii_summary_head",
        "gmai_mmbench_val_ll",
    ),
    *(
        "gmai_mmbench_test",
        "gmai_mmbench_mcls",
        "medheval_visual_mm_ll",
        "medheval_knowledge_closed",
    ),
    *("iu_xray_report", "medevalkit_pmc_vqa_reasoning", "medevalkit_slake", "mmmu_val", ""),
)


def test_variants_other_protocols_and_foreign_tasks_have_none():
    assert {task: published_scores(task) for task in WITHOUT} == dict.fromkeys(WITHOUT, ())


def test_results_of_groups_are_in_no_result_of_the_whole_task():
    areas = published_group_scores("mediconfusion")
    assert len(areas) == 216
    assert {score.column for score in areas} == {"categories"}
    assert len({score.group for score in areas}) == 9
    assert {
        (score.metric, score.value)
        for score in areas
        if (score.model, score.group) == ("GPT-4o", "Pulmonary")
    } == {
        ("set_accuracy", 0.35),
        ("individual_accuracy", 0.65),
    }
    assert not {score.source for score in published_scores("mediconfusion")} & {
        score.source for score in areas
    }
    assert published_of({"mediconfusion_table3.csv": "RadFM"}) == ()
    assert (
        published_group_scores("mediconfusion_gd")
        == published_group_scores("mediconfusion_blind")
        == ()
    )
