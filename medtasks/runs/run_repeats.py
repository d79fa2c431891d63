"""A run with all its repeats: those of the newest call below a folder for results.

An earlier call may have left repeats of something else, or more of the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from medtasks.errors import MedTasksError
from medtasks.runs.harness_options import HarnessOptions, what_is_asked
from medtasks.runs.repeat_folders import REPEATS, repeat_folder, repeat_folders, repeat_number
from medtasks.runs.run import Run, read_run
from medtasks.runs.run_manifest import RunManifest

_SEEDS = ("seed", "model_args seed", "gen_kwargs", "output_path")


@dataclass(frozen=True)
class RepeatedRun:
    """Repeats below one folder."""

    runs: Mapping[Path, Run]  # of the newest call, those that can be read
    asked: Sequence[Path]  # these, those that the call asked for and that are missing, and those of other calls


def read_repeats(output: Path, model: str | None = None) -> RepeatedRun:
    """Read the repeats below a folder."""
    folders = repeat_folders(output)
    runs: dict[Path, Run] = {}
    for folder in folders:
        try:
            runs[folder] = read_run(folder, model)
        except MedTasksError:
            continue
    newest = {folder: run.manifests[-1] for folder, run in runs.items() if run.manifests}
    counted, wanted = folders, 0
    if newest:
        last = max(newest.values(), key=lambda manifest: manifest.started)
        number = next(
            (int(after) for option, after in reversed(list(pairwise(last.command))) if option == REPEATS), None
        )
        alike = [folder for folder, manifest in newest.items() if _asked(manifest) == _asked(last)]
        counted = [folder for folder in alike if number is None or repeat_number(folder) <= number]
        wanted = number or 0
    asked = dict.fromkeys([*folders, *(repeat_folder(output, number) for number in range(1, wanted + 1))])
    return RepeatedRun({folder: runs[folder] for folder in counted if folder in runs}, list(asked))


def _asked(manifest: RunManifest) -> dict[str, str]:
    """Return what a repeat asked of which model, whatever its seed."""
    options = HarnessOptions(manifest.options)
    kept = {name: value for name, value in what_is_asked(options).items() if name not in _SEEDS}
    return {**kept, **options.pairs("gen_kwargs"), "gen_kwargs": "", "seed": ""}
