"""A spreadsheet of replies to a sanity variant must not be sent in for the task's."""

from medtasks.hooks.submission import process_results, submission_rows

from medtasks.data.catalogue import CATALOGUE
from medtasks.data.gmai.preparing import prepare
from medtasks.data.home import home
from medtasks.data.preparation import Options
from medtasks.harness.documents import task_documents
from medtasks.harness.task_files import task_file

from .. import tiny_gmai

TEST = "gmai_mmbench_test"


def test_variants_have_folders_of_their_own(tmp_path):
    for part, name in enumerate(CATALOGUE[TEST].md5):
        rows = [{**row, "index": f"{part}{row['index']}", "answer": ""} for row in tiny_gmai.rows(1, seed=part)]
        tiny_gmai.write(tmp_path / name, rows)
    prepare(CATALOGUE[TEST], Options(tmp_path, allow_changed=True))
    for task in (TEST, f"{TEST}_blind", f"{TEST}_swapped"):
        records = [process_results(one, ["A"])["submission_rows"] for one in task_documents(task_file(task))]
        assert submission_rows(records) == len(CATALOGUE[TEST].md5)
        assert len(list((home() / "submissions" / task).iterdir())) == 1
