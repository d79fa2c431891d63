"""Version of the package, which setup.cfg reads, and versions of others that a part of it needs."""

from importlib import metadata
from pathlib import Path

from packaging.version import Version

from medtasks.errors import MedTasksError

__version__ = "1.0.0"
ARCHITECTURES_NEED = {"torch": "2.10", "transformers": "5.18"}
"""Lowest versions with which the adapters for published models answer as recorded; older ones change or break them."""
TESTED = {
    "lmms_eval": "0.7.3",
    "datasets": "5.2",
    "lm_eval": "0.4",
    "openai": "3.57",
    "pillow": "13.0",
    "torch": "2.14",
    "transformers": "5.24",
}
"""Newest releases that the tests have passed with; ``5.24`` stands for 5.24.0, 5.24.1 and so on."""


def installed_version(name: str) -> str | None:
    """Return the version of a package, or None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def is_untested(package: str, version: str) -> bool:
    """Return whether a version of a package of ``TESTED`` is newer than the tested ones.

    Example:
        >>> is_untested("lm_eval", "0.4.99"), is_untested("lm_eval", "0.5")
        (False, True)
    """
    newest = Version(TESTED[package]).release
    return Version(version).release[: len(newest)] > newest


def require(package: str, least: str, user: str) -> None:
    """Check a package where one part needs a newer version than the others.

    Args:
        package: The package, which is installed.
        least: The lowest version that ``user`` works with.
        user: The part that needs the version, as the message names that part.

    Raises:
        MedTasksError: An older version is installed.
    """
    installed = metadata.version(package)
    if Version(installed) < Version(least):
        raise MedTasksError(
            f"{user} needs {package} {least} or newer, and {installed} is installed; pip install '{package}>={least}'"
        )


def check_unpickling(file: Path) -> None:
    """Refuse a pickle of weights with a torch that may run its code (CVE-2025-32434, CVE-2026-24747)."""
    require("torch", "2.10", f"{file} is a pickle, which may run code, and reading it")
