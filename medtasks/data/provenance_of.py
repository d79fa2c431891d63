"""``provenance_of.<dataset>`` describes the prepared data, for ``metadata: data: !function`` in task YAML.

The harness copies task metadata into its results file, so every result says which data it was measured on.
"""

from typing import Any

from medtasks.data.catalogue import CATALOGUE
from medtasks.data.manifest import FILE_NAME, Manifest
from medtasks.data.path_of import known, prepared_folder
from medtasks.data.privacy import is_private
from medtasks.errors import MedTasksError


def provenance(name: str) -> dict[str, Any]:
    """Return source, revision, size and fingerprints of a prepared dataset.

    What was left out is told by names of files, which may tell who a patient is: of a credentialed dataset only the
    number of notes is returned, and the manifest beside the documents has them.
    """
    manifest = Manifest.read(prepared_folder(name))
    facts = {"fingerprint": manifest.fingerprint, **manifest.model_dump(mode="json")}
    if is_private(name):
        facts["source"] = CATALOGUE[name].source if name in CATALOGUE else "withheld"
        facts["left_out"] = [f"{len(manifest.left_out)} notes in its {FILE_NAME}"] if manifest.left_out else []
    return facts


def __getattr__(name: str) -> dict[str, Any]:
    if not known(name):
        raise AttributeError(f"module {__name__!r} has no dataset {name!r}; known: {', '.join(sorted(CATALOGUE))}")
    try:
        return provenance(name)
    except MedTasksError as error:
        # dataset_path of the same task raises the sentence the user should see; this one would arrive wrapped.
        return {"error": str(error)}
