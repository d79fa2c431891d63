"""The published texts of judges, which are data: ``prompts.toml``."""

import tomllib
from functools import cache
from importlib import resources
from typing import Any


def published_prompts(benchmark: str) -> dict[str, Any]:
    """Return a benchmark's texts by what they are."""
    found: dict[str, Any] = _prompts()[benchmark]
    return found


@cache
def _prompts() -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath("prompts.toml").read_text(encoding="utf-8"))
