"""Datasets whose text and paths stay out of logs and results, and text that no log may show."""

import hashlib
import os

from medtasks.data.catalogue import CATALOGUE, Access
from medtasks.data.dataset_manifest import manifest_of
from medtasks.errors import MedTasksError
from medtasks.home import dataset_folder

UNKNOWN_TEXTS = "report_files"  # name in place of a dataset's; as no dataset has it, the texts count as credentialed
LOG_TEXT_VARIABLE = "MEDTASKS_LOG_TEXT"
PHYSIONET_VARIABLES = ("MEDTASKS_PHYSIONET_USER", "MEDTASKS_PHYSIONET_PASSWORD")
"""Variables of a person's login, which is in no record of a run and is not passed on to models."""


def access_of(name: str | None) -> Access:
    """Return the access level of a dataset, in the catalogue or a user's own.

    Args:
        name: That documents name. None is a user's own file, which counts as public; of a dataset that cannot be read
            nothing is known, so it counts as credentialed.

    Example:
        >>> access_of(None), access_of("multimedeval_medqa")
        (<Access.PUBLIC: 'public'>, <Access.PUBLIC: 'public'>)
    """
    if name is None:
        return Access.PUBLIC
    if name in CATALOGUE:
        return CATALOGUE[name].access
    try:
        return Access(manifest_of(dataset_folder(name)).access)
    except (
        MedTasksError,
        OSError,
        ValueError,
    ):  # a name that no folder can have is a ValueError
        return Access.CREDENTIALED


def is_private(dataset: str) -> bool:
    """Return whether nothing from a dataset's records may enter a log: it is credentialed, or of unknown access.

    The user can exempt datasets: ``MEDTASKS_LOG_TEXT=<dataset>[,<dataset>]``.

    Example:
        >>> is_private("multimedeval_medqa"), is_private("multimedeval_mednli")
        (False, True)
    """
    names = os.environ.get(LOG_TEXT_VARIABLE, "").split(",")
    exempt = {name.strip() for name in names} - {""}
    return dataset not in exempt and access_of(dataset) is Access.CREDENTIALED


class PrivateText:
    """Text that scoring needs and no log may show.

    It goes from rank to rank by pickle and compares by content; whatever turns it into text, JSON's ``default=str``
    included, gets a digest. It is no ``str``, so nothing shows it by accident.
    """

    __slots__ = ("dataset", "text")

    def __init__(self, text: str, dataset: str | None = UNKNOWN_TEXTS) -> None:
        self.text = text
        self.dataset = dataset  # whose access level decides where the text may go; None for a user's own documents

    def __repr__(self) -> str:
        return f"withheld (sha256 {digest(self.text)})"

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PrivateText) and self.text == other.text

    def __hash__(self) -> int:
        return hash((PrivateText, self.text))


def hidden_id(kind: str, value: object) -> str:
    """Return the digest that replaces an id.

    Args:
        kind: What the id is of, such as ``image``.
        value: The id.

    Example:
        >>> hidden_id("image", "CXR7_IM-7")
        'image-2a69cb3f1a168c0c'
    """
    return f"{kind}-{digest(str(value))}"


def digest(text: str) -> str:
    """Return the first 16 hexadecimal digits of a text's SHA-256.

    Example:
        >>> digest("")
        'e3b0c44298fc1c14'
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
