"""SLAKE in its two languages, as MedEvalKit asks it; the files are read as for MultiMedEval."""

from collections.abc import Mapping

from medtasks.data.catalogue import dataset_info
from medtasks.data.multimedeval.visual_questions import (
    SLAKE_ARCHIVE,
    SLAKE_LAYOUT,
    slake_question,
    slake_rows,
    slake_table,
)
from medtasks.data.preparation import Recipe
from medtasks.data.schema import KIT_QUESTION, Document
from medtasks.data.tables import SourceRow


def _question(row: SourceRow) -> Document:
    if "answer_type" not in row.values:
        raise row.error("answer_type is missing")
    groups = {column: row.optional_text(column) for column in ("modality", "location")}
    kind = row.one_of("answer_type", ("OPEN", "CLOSED"), "answer_type is none of")
    return {**slake_question(row), "answer_type": kind, "language": row.text("q_lang"), **groups}


_RECIPE = Recipe.of_splits(KIT_QUESTION, slake_table, slake_rows(_question), SLAKE_LAYOUT, ("test",))

RECIPES: Mapping[str, Recipe] = {
    "slake": _RECIPE.from_hub(dataset_info("medevalkit_slake"), ("test.json", SLAKE_ARCHIVE))
}
