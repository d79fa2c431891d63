"""A short task file for a user's questions, by what the columns of their file hold.

Columns are recognised by their values: paths of images, lists of options, letters of these, yes and no. Only question
and answer among several columns of text are distinguished by their names, in the languages of the extractors.
"""

import itertools
import mimetypes
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from medtasks.data.document_store import is_file_name
from medtasks.errors import MedTasksError, join_names
from medtasks.extract.reading.languages import pattern_of
from medtasks.families.columns import Column
from medtasks.tasks.answer_columns import (
    in_order_of_keys,
    is_blank,
    listed_options,
    read_column,
)
from medtasks.tasks.own_documents import columns_of, without_media
from medtasks.tasks.question_files import local_tables
from medtasks.tasks.task_index import dump_task_file

# A name that ends with a letter or number of its own.
_ENUMERATED = re.compile(r"(.*?)[ _.(-]*([A-Za-z]|\d{1,2})\)?")
_QUESTION_MARKS = ("?", "？", "؟", ";")
_FAMILIES = {
    "answer": "single_choice",
    "answers": "several_answers",
    "label": "classification",
    "labels": "several_findings",
}
"""Families by the column that has their answers."""

Values = Sequence[Any]
Columns = dict[str, Any]  # columns of the file by our names


class QuestionFile:
    """Columns of a file of questions.

    Args:
        file: CSV, TSV, .xlsx, JSON or parquet file.

    Attributes:
        columns: Cells by name of the column, shape (rows,), without columns of images.
        images: Names of the columns with images, each in a list if its cells hold lists.

    Raises:
        MedTasksError: There are no questions in the file.
    """

    def __init__(self, file: Path) -> None:
        tables = local_tables(
            {"task": file.stem, "dataset_path": str(file)}, lambda names: names
        )
        if tables is None or not len(tables["test"]):
            raise MedTasksError(
                f"there are no questions in {file}; give a CSV, TSV, .xlsx, JSON or parquet file"
            )
        self.file = file
        self.columns: dict[str, Values] = {**columns_of(without_media(tables["test"]))}
        self.images: list[Any] = []
        for name, feature in tables["test"].features.items():
            if name not in self.columns or self._are_images(self.columns[name]):
                self.images.append([name] if hasattr(feature, "feature") else name)
                self.columns.pop(name, None)

    def _are_images(self, cells: Values) -> bool:
        """Return whether cells hold nothing but images or lists of them, blank cells aside."""
        lists = [
            cell if isinstance(cell, list) else [cell] for cell in cells if not is_blank(cell)
        ]
        images = [*itertools.chain(*lists)]
        return bool(images) and all(map(self._is_image, images))

    def _is_image(self, cell: Any) -> bool:
        """Return whether a cell is an image, the name of one, or a file next to the file of questions."""
        if not isinstance(cell, str):
            return isinstance(cell, bytes) or (isinstance(cell, Mapping) and "bytes" in cell)
        kind, _ = mimetypes.guess_type(cell)
        return str(kind).startswith("image/") or (
            is_file_name(cell) and (self.file.parent / cell).is_file()
        )

    def options(self) -> Iterator[tuple[list[str], list[Values]]]:
        """Yield columns that may hold the options, with the options of each question.

        The columns are one whose cells list the options, or several with one option each.
        """
        numbered: dict[str, dict[str, str]] = {}
        for name, cells in self.columns.items():
            yield [name], list(map(listed_options, cells))
            if match := _ENUMERATED.fullmatch(name):
                numbered.setdefault(match[1].casefold(), {})[match[2].upper()] = name
        for group in numbered.values():
            names = in_order_of_keys(group)
            if names:
                rows = zip(*(self.columns[name] for name in names), strict=True)
                yield names, [[cell for cell in row if not is_blank(cell)] for row in rows]

    def answers(self, kind: Column, options: Values, taken: Iterable[str]) -> str | None:
        """Return the column whose every value is of a kind, or None without such a column.

        Args:
            kind: What the family needs. Lists of letters with one letter each are of no such kind: the answers are
                letters then.
            options: The options of each question, shape (rows,).
            taken: Columns that have another role.

        Raises:
            MedTasksError: Several columns fit, with different values.
        """
        values_of: dict[str, Values] = {}
        notes: dict[str, str] = {}
        for name in self.columns.keys() - {*taken}:
            try:
                values, note = read_column(name, kind, self.columns[name], options)
            except MedTasksError:
                continue  # it can be read in several ways, so that it needs a word of the user's
            if all(map(kind.holds, values, options)):
                values_of[name] = values
                notes[name] = note
        if not values_of:
            return None
        if kind is Column.LETTERS and all(
            len(value) == 1 for value in itertools.chain(*values_of.values())
        ):
            return None
        # The documented form, without a note, comes first.
        names = sorted(notes, key=lambda name: (notes[name], name))
        if any(values != values_of[names[0]] for values in values_of.values()):
            return self.column_for("answer", names)
        return names[0]

    def column_for(self, role: str, names: Sequence[str]) -> str:
        """Return the column with a role: the column of that name, or with a word for the role in any language.

        Args:
            role: Our name of the column, such as ``"answer"``.
            names: Columns that may have it.

        Raises:
            MedTasksError: No column has the role, or several may have.
        """
        if role in names:
            return role
        pattern = pattern_of(role)
        matching = [name for name in names if pattern.search(name.replace("_", " "))] or [
            *names
        ]
        if len(matching) != 1:
            raise MedTasksError(
                f"{self.file}: which column is the {role} is not clear, of {join_names(matching or [*self.columns])}; "
                f"call it '{role}' in the file, or copy a task from docs/own_tasks.md and add "
                f"columns: {{{role}: COLUMN}}"
            )
        return matching[0]

    def texts(self, taken: Iterable[str] = ()) -> list[str]:
        """Return the columns in which every cell is a text, without those that are taken."""
        names = []
        for name, cells in self.columns.items():
            if name not in taken and all(
                isinstance(cell, str) and cell.strip() for cell in cells
            ):
                names.append(name)
        return names

    def question(self, taken: Iterable[str] = ()) -> str | None:
        """Return the column of questions, by its name or question marks in most cells, or None without such a column.

        Args:
            taken: Columns that have another role.

        Raises:
            MedTasksError: Several columns may be that of the questions.
        """
        texts = self.texts(taken)
        names = [name for name in texts if pattern_of("question").search(name)]
        if not names:
            for name in texts:
                marks = [cell.strip().endswith(_QUESTION_MARKS) for cell in self.columns[name]]
                if sum(marks) * 2 > len(marks):
                    names.append(name)
        return self.column_for("question", names) if names else None


def new_task(name: str, questions: QuestionFile) -> str:
    """Return the text of a short task file for a file of questions.

    Raises:
        MedTasksError: No family fits the columns, or it is unclear which column has a role.
    """
    family, columns = _family(questions)
    image = (
        questions.images if len(questions.images) > 1 else next(iter(questions.images), "none")
    )
    config = {"task": name, "family": family, "data": questions.file.name, "image": image}
    renamed = {role: column for role, column in columns.items() if column not in (role, [role])}
    if renamed:
        config["columns"] = renamed
    return dump_task_file({**config, "description": f"Questions in {questions.file.name}"})


def _family(questions: QuestionFile) -> tuple[str, Columns]:
    """Return the family that columns fit, and the file's columns by our names."""
    for source, options in questions.options():
        if all(Column.OPTIONS.holds(each, ()) for each in options):
            family = _family_with_options(questions, source, options)
            if family is not None:
                return family
    _refuse_faulty_choices(questions)
    question = questions.question()
    if question is None:
        return "report", {"report": questions.column_for("report", questions.texts())}
    no_options = [()] * len(questions.columns[question])
    answer = questions.answers(Column.YES_NO, no_options, [question])
    if answer is not None:
        return "yes_no", {"question": question, "answer": answer}
    answer = questions.column_for("answer", questions.texts([question]))
    return "open_question", {"question": question, "answer": answer}


def _family_with_options(
    questions: QuestionFile,
    source: Sequence[str],
    options: Sequence[Values],
) -> tuple[str, Columns] | None:
    """Return the family whose answers are among the options, and the file's columns by our names.

    Args:
        questions: The file.
        source: Columns that have the options.
        options: The options of each question, shape (rows,).

    Returns:
        None if no column has such answers.
    """
    columns: Columns = {"options": source}
    question = questions.question(source)
    kinds = {"answer": Column.LETTER, "labels": Column.LABELS, "answers": Column.LETTERS}
    if question is not None:
        columns["question"] = question
    elif all(each == options[0] for each in options):
        kinds["label"] = Column.LABEL
    for role, kind in reversed(kinds.items()):
        answer = questions.answers(kind, options, [*source, str(question)])
        if answer is None:
            continue
        columns[role] = answer
        if role == "answer" and {"pair_id", "position"} <= questions.columns.keys():
            return "pairs", columns
        return _FAMILIES[role], columns
    return None


def _refuse_faulty_choices(questions: QuestionFile) -> None:
    """Refuse a file in which most, but not all, answers are options of their questions.

    Without this check the file would become a task without options.

    Raises:
        MedTasksError: Some answers are no options, some questions have none, or the answers can be read in two ways.
    """
    for source, listed_cells in questions.options():
        options = [each if Column.OPTIONS.holds(each, ()) else [] for each in listed_cells]
        for name, cells in questions.columns.items():
            if name in source:
                continue
            letters, _ = read_column(name, Column.LETTER, cells, options)
            holds = list(map(Column.LETTER.holds, letters, options))
            if sum(holds) * 2 > len(holds):
                raise MedTasksError(
                    f"{questions.file}: '{name}' is an option of {join_names(source)} in {sum(holds)} of {len(holds)} "
                    f"questions, and question {holds.index(False) + 1} is the first other one; correct it or "
                    "leave such questions out"
                )
