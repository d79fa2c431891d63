"""The dataset of CONTRIBUTING.md: entry, module, task and test work as printed."""

import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

from medtasks.data.catalogue import CATALOGUE, Access, DatasetInfo
from medtasks.data.document_store import load_documents
from medtasks.data.prepare.prepare_dataset import prepare, verify
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.prepare.source_tables import SourceRow, TableReader
from medtasks.data.schema import CHOICE, NewDocument, choice_document
from medtasks.tasks.task_index import read_config, resolve_names, tasks_folder

from ..multimedeval_sources import picture, put_parquet

PAGE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
PART = PAGE[PAGE.index("## A new dataset of a known kind") :]
ENTRY, MODULE, TASK, _, TEST = re.findall(
    r"```(?:toml|python|yaml|md)\n(.*?)```", PART, re.DOTALL
)
OF_MODULE = (SourceRow, TableReader, choice_document)
OF_TEST = (load_documents, prepare, verify, Options, picture, put_parquet)


def named(objects):
    return {thing.__name__: thing for thing in objects}


def test_the_printed_dataset(home, tmp_path, monkeypatch):
    (facts,) = tomllib.loads(ENTRY)["sources"]
    ((name, own),) = facts.pop("datasets").items()
    monkeypatch.setitem(
        CATALOGUE,
        name,
        DatasetInfo(name, **{**facts, **own, "access": Access(facts["access"])}),
    )
    module = ModuleType(f"medtasks.data.sources.{facts['reader']}")
    vars(module).update(named(OF_MODULE), CHOICE=CHOICE, NewDocument=NewDocument)
    exec(MODULE, vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names = named(OF_TEST)
    exec(TEST, names)
    names["test_made_up_rows"](home, tmp_path)
    (tmp_path / "task").mkdir()
    task = tmp_path / "task" / "rad_quiz.yaml"
    task.write_text(TASK.replace("..", str(tasks_folder())))
    config = resolve_names(read_config(task))
    assert config["task_alias"] == "rad_quiz"
    assert config["dataset_path"] == str(home / "datasets" / "rad_quiz")
    assert config["lmms_eval_specific_kwargs"]["default"]
    assert config["metadata"]["data"]["rows"] == 2
