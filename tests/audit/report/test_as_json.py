import json
import math
from pathlib import Path

import numpy as np

from medtasks.audit.report.contents import Item, RuleScores, RunReport, Score, TaskReport, report_as_dict
from medtasks.extract.extractor_registry import Reason
from medtasks.families.family import ReadAnswer

SCORE = Score("accuracy", np.float64(0.5), math.nan, math.inf, -math.inf, share=True, higher_is_better=True)
ITEM = Item(
    doc_id="d",
    unit="d",
    images=("images/x.png",),
    reply="half a surrogate \ud83d",
    losses=(np.float32(0.25), math.nan),
    answers={"robust": ReadAnswer(None, Reason.EMPTY, right=False)},
    groups={"area": ("x", "y")},
)
TASK = TaskReport(
    name="t",
    describes="",
    documents=1,
    answered=1,
    rules=(RuleScores("robust", "", "", (SCORE,), reasons={Reason.EMPTY: np.int64(3)}),),
    items=(ITEM,),
    pictures={"images/x.png": Path("/somewhere/secret/x.png")},
)
REPORT = RunReport("t", "m", "now", "", {"a": "b"}, (TASK,), {"u": "why"}, notes=("one",))


def test_everything_is_json_and_paths_are_not_in_it():
    found = report_as_dict(REPORT)
    written = json.dumps(found, allow_nan=False)
    assert json.loads(written) == found
    assert "secret" not in written
    task = found["tasks"][0]
    assert "pictures" not in task
    (score,) = task["rules"][0]["scores"]
    undefined = dict.fromkeys(("error", "low", "high"))
    flags = {"share": True, "higher_is_better": True, "by_construction": False}
    assert score == {"metric": "accuracy", "value": 0.5, **undefined, **flags}
    assert (task["withheld"], task["documents"]) == (False, 1)
    assert task["rules"][0]["reasons"] == {"empty": 3}
    (item,) = task["items"]
    assert item["losses"] == [0.25, None]
    assert item["answers"]["robust"] == {"value": None, "reason": "empty", "right": False, "score": None}
    assert item["groups"] == {"area": ["x", "y"]}
    assert (found["missing"], found["notes"], task["calibration"]) == ({"u": "why"}, ["one"], {})
