"""The order of rows in the harness's table."""

from types import SimpleNamespace

from lmms_eval.utils import make_table

from medtasks.harness.result_table import order_table

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


def rows(table, results, column="results"):
    lines = table({column: results, "n-shot": {}, "higher_is_better": {}}, column).splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:]] for line in lines[2:] if line]
    return [(one[1], one[3], *(text if text == "N/A" else float(text) for text in (one[5], one[7]))) for one in cells]


def test_the_main_metric_comes_first_and_nothing_else_changes():
    module = SimpleNamespace(make_table=make_table)
    order_table(module)
    once = module.make_table
    order_table(module)
    assert module.make_table is once
    found = rows(module.make_table, {"mediconfusion": dict(ROW)})
    assert [(metric, name) for name, metric, *_ in found] == [
        ("set_accuracy", "reference"),
        ("set_accuracy", "robust"),
        ("individual_accuracy", "reference"),
        ("confusion", "reference"),
        ("confusion", "robust"),
    ]
    assert set(found) == set(rows(make_table, {"mediconfusion": dict(ROW)}))
    assert found[0][2:] == (0.75, 0.0625)


def test_tasks_that_are_not_ours_keep_the_alphabet():
    module = SimpleNamespace(make_table=make_table)
    order_table(module)
    row = {"alias": "mme", "b,none": 0.5, "a,none": 0.25}
    assert rows(module.make_table, {"mme": dict(row)}) == rows(make_table, {"mme": dict(row)})
    assert rows(module.make_table, {"mediconfusion_all": dict(ROW)}, "groups")[0][1] == "set_accuracy"
