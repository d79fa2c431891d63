"""3D-RAD's closed questions on chest CT: is a finding present, and how has it changed between scans.

The Hub's ``test`` folder has a CSV file for each finding or number of scans; rows with ``QuestionType`` ``Close`` have
two or four options, of which ``-`` fills the places of missing ones. A volume is CT-RATE's, resized by the authors to
32 slices of 256 x 256 with values from 0 to 1, in a NumPy array of shape (1, 32, 256, 256). They stay in the source
folder. The open questions of the same files are not asked.

Source: Gai et al., NeurIPS 2025, https://huggingface.co/datasets/Tang-xiaoxiao/3D-RAD, and
https://github.com/Tang-xiaoxiao/3D-RAD at 2e66113.
"""

import functools
from pathlib import Path

from medtasks.data.images.image_store import ImageStore
from medtasks.data.prepare.source_files import SourceFile, not_found
from medtasks.data.prepare.source_recipe import (
    PublishedRow,
    PublishedRows,
    SourceRecipe,
    images_row,
)
from medtasks.data.prepare.source_tables import csv_table
from medtasks.data.schema import CHOICE, new_document
from medtasks.errors import SourceError

_TABLES = ("test/*/*.csv", "3DRAD/test/*/*.csv")
_COLUMNS = CHOICE | {"question_type": "string"}
_CHOICES = [f"Choice {name}" for name in "ABCD"]
_NEEDED = ("VolumeName", "Question", "QuestionType", "AnswerChoice", *_CHOICES)
_CLOSED, _NO_CHOICE = "Close", "-"


def closed_questions(source: Path, images: ImageStore) -> PublishedRows:
    """Read the questions, file after file.

    Args:
        source: Folder with the tables and volumes.
        images: Store of the volumes, which are not copied.

    Raises:
        SourceError: There are no tables, or two volumes have one name.
    """
    by_pattern = [sorted(source.glob(pattern)) for pattern in _TABLES]
    tables = next(filter(None, by_pattern), None)
    if tables is None:
        raise not_found(source, _TABLES[0])
    volumes = _volumes_by_name(source)
    add_volume = functools.cache(images.add_volume)
    for table in tables:
        folder = table.parent.name
        kind = folder.partition("_")[2].replace("_", " ")
        for row in csv_table(SourceFile(table), _NEEDED).rows():
            if row.text("QuestionType") != _CLOSED:
                yield PublishedRow(row.place, cause="open questions", outside=True)
                continue
            name = row.text("VolumeName").removesuffix(".nii.gz")
            path = volumes.get(name, source / f"{name}.npy")
            adding = [(path.name, functools.partial(add_volume, path, source))]
            options = [text for column in _CHOICES if (text := row.text(column)) != _NO_CHOICE]
            letters = "ABCD"[: len(options)]
            document = new_document(
                _COLUMNS,
                f"{folder}/{table.stem}/{row.index}",
                question=row.text("Question"),
                options=options,
                answer=row.one_of("AnswerChoice", letters, "AnswerChoice is none of"),
                subject=table.stem,
                question_type=kind,
                image_id=name,
                patient_id="_".join(name.split("_")[:2]),
            )
            yield images_row(row.place, adding, document)


def _volumes_by_name(source: Path) -> dict[str, Path]:
    """Return the volumes anywhere below a folder, by name without the ending.

    Raises:
        SourceError: Two have one name.
    """
    volumes: dict[str, Path] = {}
    for path in sorted(source.rglob("*.npy")):
        if path.stem in volumes:
            raise SourceError(
                f"{volumes[path.stem]} and {path} have one name; keep one of them"
            )
        volumes[path.stem] = path
    return volumes


RECIPES = {
    "rad_3d_closed": SourceRecipe(
        _COLUMNS,
        closed_questions,
        "the Hub's folder test/ and, unpacked from Images/test.zip, its volumes test_1000_a_1.npy ..., which must stay "
        "there",
    )
}
