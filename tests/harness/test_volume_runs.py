"""CT-RATE through the harness: RadFM is given the volume itself, any other model slices."""

import pytest

from medtasks.data.store import load_documents
from medtasks.extract.failure import failure_cause

from .. import tiny_multimedeval
from ..model_adapters.radfm_toy import SIDE, adapter, write_toy

TASK = "multimedeval_ct_rate_report"

pytestmark = pytest.mark.slow


def test_radfm_writes_reports_on_volumes(tmp_path, monkeypatch):
    pytest.importorskip("nibabel", reason="nibabel is not installed; pip install 'medtasks[radfm]'")
    from lmms_eval.evaluator import simple_evaluate
    from lmms_eval.tasks import TaskManager

    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))
    tiny_multimedeval.prepare("ct_rate_report")
    (tmp_path / "toy").mkdir()
    model = adapter(write_toy(tmp_path / "toy"), max_failed=0)
    shown = []

    def seen(text, images):
        prompt = type(model).encode(model, text, images)
        shown.append((text, images, prompt.pixels.shape))
        return prompt

    monkeypatch.setattr(model, "encode", seen)
    manager = TaskManager(model_name="radfm")
    results = simple_evaluate(model=model, tasks=[TASK], task_manager=manager, gen_kwargs="max_new_tokens=6")
    assert results["n-samples"][TASK]["effective"] == tiny_multimedeval.TEST_ROWS
    assert results["results"][TASK]["invalid_rate,reference"] == 0
    replies = [sample["resps"][0][0] for sample in results["samples"][TASK]]
    assert not any(failure_cause(reply) for reply in replies)
    files = {file for doc in load_documents(TASK) for file in doc["image_files"]}
    for text, images, shape in shown:
        assert text == "Can you provide a radiology report for this set of CT scans? <image>"
        assert [image.removeprefix(f"{tmp_path}/home/datasets/{TASK}/") in files for image in images] == [True]
        assert shape == (1, 3, SIDE, SIDE, 4)  # six slices, brought to a depth that RadFM takes
