"""Folders of repeats of a run: ``repeat_<number>`` below the folder for results, counted from 1."""

from pathlib import Path

REPEATS = "--repeats"
"""Option of ``medtasks run`` that asks for them."""
_FOLDER = "repeat_"


def repeat_folder(output: Path, number: int) -> Path:
    """Return the folder of a repeat."""
    return output / f"{_FOLDER}{number}"


def repeat_folders(output: Path) -> list[Path]:
    """List the folders of all repeats in order; none where nothing was repeated."""
    folders = [path for path in output.glob(f"{_FOLDER}*") if path.name.removeprefix(_FOLDER).isdecimal()]
    return sorted((path for path in folders if path.is_dir()), key=repeat_number)


def repeat_number(folder: Path) -> int:
    """Return the number of a repeat."""
    return int(folder.name.removeprefix(_FOLDER))
