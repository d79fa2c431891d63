"""A short task file for a user's questions, by what the columns of their file hold.

Columns are recognised by their values: paths of images, lists of options, letters of these, yes and no. Only question
and answer among several columns of text are told apart by their names, in the languages of the extractors.
"""

import mimetypes
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from medtasks.data.document_store import is_file_name
from medtasks.errors import MedTasksError, listed
from medtasks.extract.reading.languages import pattern_of
from medtasks.families.family import Column
from medtasks.tasks.answer_columns import in_order_of_keys, is_blank, listed_options, read_column
from medtasks.tasks.own_documents import holds
from medtasks.tasks.question_files import local_tables
from medtasks.tasks.task_index import dumped

PAGE = "docs/own_tasks.md"
_ENUMERATED = re.compile(r"(.*?)[ _.(-]*([A-Za-z]|\d{1,2})\)?")  # a name that ends with a letter or number of its own
_QUESTION_MARKS = ("?", "？", "؟", ";")
_REPORT_WORDS = 8  # mean length from which texts without a question are reports
_QUOTED = "'{}'"

Values = Sequence[Any]


@dataclass(frozen=True)
class Answers:
    """Column that may hold the answers: its name, and the values that the family reads in it."""

    name: str
    values: Values
    is_documented: bool  # whether they are written in the form of docs/own_tasks.md


class QuestionFile:
    """Columns of a file of questions, by their names."""

    def __init__(self, file: Path) -> None:
        tables = local_tables({"task": file.stem, "dataset_path": str(file)}, lambda names: names)
        if tables is None or not len(tables["test"]):
            raise MedTasksError(f"there are no questions in {file}; give a CSV, TSV, .xlsx, JSON or parquet file")
        self.file = file
        self.table = tables["test"]
        self.images = [name for name in self.table.column_names if self._holds_images(name)]
        media = {name for name in self.images if not self._is_text(name)}
        self.columns: dict[str, Values] = self.table.remove_columns([*media]).to_dict()

    def _is_text(self, name: str) -> bool:
        inner = self.table.features[name]
        return getattr(getattr(inner, "feature", inner), "dtype", "") in ("string", "large_string")

    def _holds_images(self, name: str) -> bool:
        inner = self.table.features[name]
        inner = getattr(inner, "feature", inner)
        if not self._is_text(name):
            dtype = getattr(inner, "dtype", "")
            return dtype in ("binary", "PIL.Image.Image") or (isinstance(inner, Mapping) and "bytes" in inner)
        texts = [text for cell in self.table[name] for text in (cell if isinstance(cell, list) else [cell])]
        texts = [text for text in texts if not is_blank(text)]
        return bool(texts) and all(map(self._is_image, texts))

    def _is_image(self, text: str) -> bool:
        if not is_file_name(text):
            return text.startswith("data:image/")
        kind, _ = mimetypes.guess_type(text)
        return str(kind).startswith("image/") or (self.file.parent / text).is_file()

    @cached_property
    def options(self) -> list[tuple[str | list[str], list[Values]]]:
        """Columns that may hold the options, one with lists or several, and the options of each question."""
        candidates: list[tuple[str | list[str], list[Values]]] = []
        for name, cells in self._others([]):
            as_lists = [listed_options(cell) for cell in cells]
            if all(isinstance(each, list) and holds(Column.OPTIONS, each, ()) for each in as_lists):
                candidates.append((name, as_lists))
        groups: dict[str, dict[str, str]] = {}
        for name, _ in self._others([]):
            if match := _ENUMERATED.fullmatch(name):
                groups.setdefault(match[1].casefold(), {})[match[2].upper()] = name
        for group in groups.values():
            names = in_order_of_keys(group)
            if len(names) > 1:
                rows = zip(*(self.columns[name] for name in names), strict=True)
                candidates.append((names, [[cell for cell in row if not is_blank(cell)] for row in rows]))
        return candidates

    def answers(self, kind: Column, options: Values, taken: Iterable[str] = ()) -> Answers | None:
        """Return the column whose every value is of a kind; MedTasksError where several are, with other values."""
        fitting = []
        for name, cells in self._others(taken):
            try:
                values, note = read_column(name, kind, cells, options)
            except MedTasksError:
                continue  # it can be read in several ways, so that it is not used without a word of the user's
            if all(holds(kind, value, of_row) for value, of_row in zip(values, options, strict=True)):
                fitting.append(Answers(name, values, not note))
        if kind is Column.LETTERS and all(len(value) == 1 for each in fitting for value in each.values):
            return None
        if any(each.values != fitting[0].values for each in fitting):
            names = self.named("answer", [each.name for each in fitting])
            if len(names) != 1:
                raise self.unclear("answer", [each.name for each in fitting])
            fitting = [each for each in fitting if each.name in names]
        return max(fitting, key=lambda each: each.is_documented, default=None)

    def named(self, role: str, names: Sequence[str]) -> list[str]:
        """Return the names that are a role's, or else those with a word for it in any language."""
        pattern = pattern_of(role)
        return [name for name in names if name == role] or [
            name for name in names if pattern.search(name.replace("_", " "))
        ]

    def unclear(self, role: str, names: Sequence[str]) -> MedTasksError:
        """Build the error for a role that several columns may have."""
        choices = listed([_QUOTED.format(name) for name in names])
        return MedTasksError(
            f"{self.file}: {choices} may all be the {role}; call the right one '{role}' in the file, or write the task "
            f"with columns: {{{role}: {names[0]}}} ({PAGE})"
        )

    def texts(self, taken: Iterable[str]) -> list[str]:
        """Return the columns of texts, longest first."""
        texts = {
            name: sum(len(cell.split()) for cell in cells) / len(cells)
            for name, cells in self._others(taken)
            if all(isinstance(cell, str) and cell.strip() for cell in cells)
        }
        return sorted(texts, key=lambda name: -texts[name])

    def question(self, taken: Iterable[str]) -> str | None:
        """Return the column of questions: by its name, else by question marks; None if there is none."""
        texts = self.texts(taken)
        marked = [
            name
            for name in texts
            if sum(cell.strip().endswith(_QUESTION_MARKS) for cell in self.columns[name]) * 2 > len(self.columns[name])
        ]
        return next(iter(self.named("question", texts) or marked), None)

    def _others(self, taken: Iterable[str]) -> list[tuple[str, Values]]:
        left_out = {*self.images, *taken}
        return [(name, cells) for name, cells in self.columns.items() if name not in left_out]


def new_task(name: str, questions: QuestionFile) -> str:
    """Return the short task file for a file of questions; MedTasksError where no family fits its columns."""
    family, columns = _family(questions)
    config: dict[str, Any] = {"task": name, "family": family, "data": questions.file.name, **_images(questions)}
    renamed = {role: column for role, column in columns.items() if role != column}
    if renamed:
        config["columns"] = renamed
    return dumped({**config, "description": f"Questions in {questions.file.name}"})


def _images(questions: QuestionFile) -> dict[str, Any]:
    names = questions.images
    if not names:
        return {"image": "none"}
    cells = questions.table[names[0]] if questions._is_text(names[0]) else ()
    if len(names) > 1 or any(isinstance(cell, list) for cell in cells):
        return {"images": names if len(names) > 1 else names[0]}
    return {"images": names} if any(map(is_blank, cells)) else {"image": names[0]}


def _family(questions: QuestionFile) -> tuple[str, dict[str, Any]]:
    """Return the family that columns fit, and the file's columns by our names."""
    for source, options in questions.options:
        taken = source if isinstance(source, list) else [source]
        columns: dict[str, Any] = {"options": source}
        question = questions.question(taken)
        if question is not None:
            columns["question"] = question
            taken = [*taken, question]
        if labels := questions.answers(Column.LABELS, options, taken):
            return "several_findings", {**columns, "labels": labels.name}
        if letters := questions.answers(Column.LETTERS, options, taken):
            return "several_answers", {**columns, "answers": letters.name}
        if question is None and all(each == options[0] for each in options):
            if label := questions.answers(Column.LABEL, options, taken):
                return "classification", {**columns, "label": label.name}
        elif answer := questions.answers(Column.LETTER, options, taken):
            paired = {"pair_id", "position"} <= {*questions.columns}
            return "pairs" if paired else "single_choice", {**columns, "answer": answer.name}
    question = questions.question(())
    if question is None:
        return "report", {"report": _report(questions)}
    nothing = [()] * len(questions.columns[question])
    if answer := questions.answers(Column.YES_NO, nothing, [question]):
        return "yes_no", {"question": question, "answer": answer.name}
    texts = questions.texts([question])
    names = questions.named("answer", texts) or texts
    if len(names) != 1:
        raise questions.unclear("answer", names) if names else _no_family(questions)
    return "open_question", {"question": question, "answer": names[0]}


def _report(questions: QuestionFile) -> str:
    texts = questions.texts(())
    if "report" in texts:
        return "report"
    words = [len(cell.split()) for cell in questions.columns[texts[0]]] if texts else []
    if not questions.images or sum(words) < _REPORT_WORDS * len(words) or not words:
        raise _no_family(questions)
    return texts[0]


def _no_family(questions: QuestionFile) -> MedTasksError:
    names = listed([*questions.images, *questions.columns])
    return MedTasksError(
        f"the columns of {questions.file} ({names}) fit no family; {PAGE} has what each needs, and how to name columns"
    )
