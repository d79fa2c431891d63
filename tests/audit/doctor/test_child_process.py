"""What a child told before it ended, however it ended."""

import pytest

from medtasks.audit.doctor import child_process
from medtasks.audit.doctor.child_process import Child, Told
from medtasks.errors import MedTasksError


def test_leaving_the_block_ends_the_child(package):
    package("torch", "import time\ntime.sleep(600)\n")
    with Child("torch") as child:
        process = child._process
    assert process.returncode is not None


def test_child_that_cannot_run_tells_its_exit_code():
    with Child("nothing of the kind") as child:
        told = child.told()
    assert told.how == "exit code 1"
    with pytest.raises(MedTasksError, match=r"ended too early \(exit code 1\)"):
        told.step("index")


def test_child_that_does_not_end(package, monkeypatch):
    monkeypatch.setattr(child_process, "TIMEOUT_S", 0.5)
    package("torch", "import time\ntime.sleep(600)\n")
    with Child("torch") as child:
        told = child.told()
    assert (told.how, told.steps) == ("no end within 0.5 s", {})


def test_step_that_was_told():
    assert Told({"index": {"missing": []}}).step("index") == {"missing": []}


@pytest.mark.slow
def test_real_harness_finds_our_tasks(told):
    index = told("harness", "mediconfusion", "multimedeval_qa", "no_such_task").step("index")
    assert (index["error"], index["missing"]) == ("", ["no_such_task"])


@pytest.mark.slow
def test_real_torch(told):
    found = told("torch")
    assert found.how == ""
    assert [found.step(name)["error"] for name in ("torch", "torchvision", "transformers", "devices")] == [""] * 4
    assert found.step("transformers")["uses_torch"] is True
