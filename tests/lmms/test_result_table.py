"""The order of rows in the harness's table."""

import copy
import json

from lmms_eval.utils import make_table

from medtasks.lmms.evaluation import put_main_metrics_first

ROW = {
    "alias": "mine",
    "confusion,reference": 0.5,
    "confusion_stderr,reference": 0.1,
    "confusion,robust": 0.25,
    "individual_accuracy,reference": 0.5,
    "set_accuracy,robust": 0.125,
    "set_accuracy,reference": 0.75,
    "set_accuracy_stderr,reference": 0.0625,
}


def printed(results, column="results"):
    """The rows of the table, which takes the alias out of the results."""
    table = make_table({**copy.deepcopy(results), "n-shot": {}, "higher_is_better": {}}, column)
    cells = [[cell.strip() for cell in line.split("|")[1:]] for line in table.splitlines()[2:] if line]
    return [(one[1], one[3], *(text if text == "N/A" else float(text) for text in (one[5], one[7]))) for one in cells]


def placed(results):
    put_main_metrics_first(results)
    return results


def test_the_main_metric_comes_first_and_nothing_else_changes():
    found = printed(placed({"results": {"mediconfusion": dict(ROW)}}))
    assert [(metric, name) for name, metric, *_ in found] == [
        ("set_accuracy", "reference"),
        ("set_accuracy", "robust"),
        ("individual_accuracy", "reference"),
        ("confusion", "reference"),
        ("confusion", "robust"),
    ]
    assert set(found) == set(printed({"results": {"mediconfusion": dict(ROW)}}))
    assert found[0][2:] == (0.75, 0.0625)


def test_what_is_written_is_the_same():
    results = {
        "results": {"mediconfusion": dict(ROW)},
        "groups": {"mediconfusion_all": dict(ROW)},
        "versions": {"a": 1},
    }
    expected = json.dumps(results)
    assert json.dumps(placed(results)) == expected
    assert results["results"]["mediconfusion"]["set_accuracy,robust"] == 0.125
    assert printed(results, "groups")[0][1] == "set_accuracy"


def test_tasks_that_are_not_ours_keep_the_alphabet():
    row = {"alias": "mme", "b,none": 0.5, "a,none": 0.25}
    assert printed(placed({"results": {"mme": dict(row)}})) == printed({"results": {"mme": dict(row)}})
