"""Facts that come with the package as TOML beside the code that needs them."""

import tomllib
from importlib import resources
from typing import Any


def packaged_facts(package: str, name: str) -> dict[str, Any]:
    """Return what ``<name>.toml`` of a package of ours holds."""
    return tomllib.loads(resources.files(package).joinpath(f"{name}.toml").read_text(encoding="utf-8"))
