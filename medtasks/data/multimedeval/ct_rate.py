"""CT-RATE as report generation: chest CT volumes of the validation split, each with the findings of its report.

One row per reconstructed volume, in the order of ``validation_reports.csv``; a repeated row counts once. The volumes of
one scan share its report. They stay in the source folder.

Source: Hamamci et al., https://huggingface.co/datasets/ibrahimhamamci/CT-RATE; ``multimedeval/ct_rate.py`` at d9ac283.
"""

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from medtasks.data.image_store import ImageStore
from medtasks.data.multimedeval.csv_table import CsvTable
from medtasks.data.multimedeval.image_rows import images_row
from medtasks.data.multimedeval.source_files import find_file, not_found
from medtasks.data.multimedeval.source_rows import SourceRow
from medtasks.data.preparation import Recipe, Row
from medtasks.data.schema import REPORT
from medtasks.data.volume_files import ENDING

_REPORTS = "radiology_text_reports/validation_reports.csv"
_TOPS = ("", "dataset/", "ct_rate/dataset/", "*/dataset/")
_FOLDERS = ("valid", "valid_fixed")


def _test(source: Path, images: ImageStore) -> Iterator[Row]:
    file = find_file(source, [f"{top}{_REPORTS}" for top in _TOPS])
    if file is None:
        raise not_found(source, _REPORTS)
    top = file.path.parents[1]
    seen: set[tuple[str, str]] = set()
    for row in CsvTable(file, ("VolumeName", "Findings_EN")).rows():
        content = row.text("VolumeName"), row.text("Findings_EN")
        if content not in seen:
            seen.add(content)
            yield _row(row, top, images)


def _row(row: SourceRow, top: Path, images: ImageStore) -> Row:
    name = row.text("VolumeName")
    parts = name.removesuffix(ENDING).split("_")  # split, patient, scan, reconstruction
    if not name.endswith(ENDING) or len(parts) != 4:
        raise row.error(f"VolumeName is not of the form valid_1_a_1{ENDING}")
    if not row.text("Findings_EN").strip():
        return Row(row.place, None, cause="its report has no findings")
    patient, scan = "_".join(parts[:2]), "_".join(parts[:3])
    document = {
        "doc_id": name.removesuffix(ENDING),
        "image_id": name.removesuffix(ENDING),
        "patient_id": patient,
        "context": None,
        "indication": None,
        "report": row.text("Findings_EN"),
    }
    places = [top / folder / patient / scan / name for folder in _FOLDERS]
    path = next((place for place in places if place.is_file()), places[0])
    return images_row(row.place, {name: functools.partial(images.add_volume, path)}, document)


RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "ct_rate_report": Recipe(
            columns=REPORT,
            test=_test,
            layout=f"the Hub's {_REPORTS} and valid/valid_1/valid_1_a/valid_1_a_1{ENDING} ..., which must stay there",
        )
    }
)
