"""The sources of the harness's models, read once for all tests that hold our tables against them."""

import ast
import functools
from pathlib import Path

import lmms_eval.models


@functools.cache
def model_sources() -> list[tuple[Path, ast.Module]]:
    """Return the files below the harness's folder of models, parsed."""
    files = sorted(Path(lmms_eval.models.__file__).parent.rglob("*.py"))
    assert len(files) > 100
    return [(file, ast.parse(file.read_bytes())) for file in files]
