"""Our tables of options, keys and models are those of the installed lmms-eval; few rooms import it."""

import dataclasses
import re
import sys
from pathlib import Path

from lmms_eval import __main__ as command_line
from lmms_eval.api.task import TaskConfig

from medtasks.lmms.server_journal import CHAT_CLIENTS
from medtasks.runs.harness_options import FLAGS, VALUED
from medtasks.tasks.documents import KEYS

from .model_sources import model_sources

ROOM = Path(__file__).parents[2] / "medtasks"


def test_models_that_ask_by_an_openai_client_are_known():
    texts = {file.stem: file.read_text() for file, _ in model_sources() if file.parent.name in ("chat", "simple")}
    asking = {name for name, text in texts.items() if "self.client.chat.completions.create(" in text}
    assert asking | {"litellm"} == CHAT_CLIENTS
    assert "self.client = _LiteLLMClientShim(" in texts["litellm"]


def test_options_of_the_command_line(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["lmms_eval"])
    parser, _ = command_line.parse_eval_args()
    actions = [action for action in parser._actions if action.dest != "help"]
    for names, is_flag in ((VALUED, False), (FLAGS, True)):
        theirs = {frozenset(action.option_strings) for action in actions if (action.nargs == 0) is is_flag}
        assert theirs == {frozenset(name.split(",")) for name in names}


def test_keys_of_task_files():
    known = {field.name for field in dataclasses.fields(TaskConfig)}
    assert KEYS - {"include", "class", "metadata"} <= known | {"include", "class"}
    assert known <= KEYS


def test_only_these_rooms_import_the_harness():
    """At run time, and not for its types; data, metrics and extraction know nothing of it."""
    importing = {
        path.relative_to(ROOM).parts[0]
        for path in ROOM.rglob("*.py")
        if re.search(r"^\s*(?:from|import) lmms_eval\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert importing <= {"lmms", "running", "audit"}
