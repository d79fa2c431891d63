"""OmniMedVQA as VLMEvalKit evaluates it: the first 14 of 30 TSV files, ``part_1.tsv`` to ``part_14.tsv``.

They have VLMEvalKit's usual columns, with the images in them (``vlmeval/dataset/image_mcq.py`` at e8e78f05, lines 2405
to 2464). Which of OmniMedVQA's own parts they hold is said nowhere, so that they are a dataset of their own and not a
selection from that one.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from medtasks.data.catalogue import dataset_info
from medtasks.data.gmai.questions import read_questions, rows_of
from medtasks.data.gmai.tsv import TsvFile
from medtasks.data.image_store import ImageStore
from medtasks.data.medevalkit.documents import kit_choice, lettered
from medtasks.data.preparation import Recipe, Row
from medtasks.data.schema import KIT_CHOICE, Document
from medtasks.data.source_files import required_file

_PARTS = tuple(f"part_{number}" for number in range(1, 15))


def _read(source: Path, images: ImageStore) -> Iterator[Row]:
    files = {part: required_file(source, [f"{part}.tsv"]).path for part in _PARTS}
    for part, path in files.items():
        for row in rows_of(read_questions(TsvFile(path), images, keyed=True, several=False)):
            yield row if row.document is None else dataclasses.replace(row, document=_document(part, row.document))


def _document(part: str, read: Mapping[str, Any]) -> Document:
    """Return a document from the columns that VLMEvalKit's files share; the rest of them is not known."""
    options = read["options"]
    known = {name: read[name] for name in ("image_id", "question", "modality")}
    return kit_choice(
        f"{part}/{read['doc_id']}", options, lettered(options, "{}. {}"), read["answer"], part=part, **known
    )


RECIPES: Mapping[str, Recipe] = {
    "omnimedvqa_vlmevalkit": Recipe(KIT_CHOICE, _read, "part_1.tsv to part_14.tsv").from_hub(
        dataset_info("medevalkit_omnimedvqa_vlmevalkit"), [f"{part}.tsv" for part in _PARTS]
    )
}
