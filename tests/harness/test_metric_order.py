"""Main metrics come first."""

from medtasks.harness.task_files import main_metrics_first


def test_a_tasks_own_order():
    assert main_metrics_first(
        "mediconfusion", ["confusion", "invalid_rate", "set_accuracy", "individual_accuracy"]
    ) == [*("set_accuracy", "individual_accuracy", "confusion", "invalid_rate")]
    assert main_metrics_first("mediconfusion_blind", ["confusion", "set_accuracy"]) == ["set_accuracy", "confusion"]


def test_a_group_is_as_its_first_member():
    assert main_metrics_first("mediconfusion_all", ["confusion", "set_accuracy"]) == ["set_accuracy", "confusion"]


def test_what_is_not_listed_comes_behind():
    assert main_metrics_first("mediconfusion", ["z", "a", "set_accuracy", "z"]) == ["set_accuracy", "z", "a"]
    assert main_metrics_first("mme", ["z", "a"]) == ["z", "a"]
