"""Volumes in prompts: files for models that read them, slices for all others."""

import numpy as np
import pytest
from medtasks.model_adapters.radfm.network import read_volume

from medtasks.data.document_store import load_documents
from medtasks.errors import MedTasksError, SourceError
from medtasks.prompts.volumes import messages, prompt, volumes

from .. import tiny_multimedeval

TEXT = "Report on: {{ images }} please"


@pytest.fixture
def doc(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    tiny_multimedeval.prepare("ct_rate_report")
    return load_documents("multimedeval_ct_rate_report")[0]


def test_a_model_that_reads_volumes_gets_the_file_and_others_slices_that_lie_as_in_it(doc, tmp_path):
    settings = {"template": TEXT, "image_mark": "<image>", "slices": 0}
    assert prompt(doc, settings) == "Report on: <image> please"
    (file,) = volumes(doc, settings)
    assert isinstance(file, str)
    assert file.startswith(str(tmp_path / "datasets"))
    assert file.endswith(".nii.gz")
    whole = read_volume(file, 8)[0].numpy()
    shown = [np.asarray(picture)[..., 0] / 255 for picture in volumes(doc, {"slices": 6})]
    assert np.allclose(np.stack(shown, axis=-1), whole, atol=1e-2)
    settings = {"template": TEXT, "image_mark": "<image>", "slices": 3, "images_joined_by": " "}
    assert prompt(doc, settings) == "Report on: <image> <image> <image> please"
    pictures = volumes(doc, settings)
    assert [(picture.mode, picture.size) for picture in pictures] == [("RGB", (10, 9))] * 3
    assert prompt(doc, {"template": TEXT}) == "Report on: please"
    assert len(volumes(doc)) == 8
    (turn,) = messages(doc, settings)
    assert [part["type"] for part in turn["content"]] == ["text", "image", "text", "image", "text", "image", "text"]
    assert turn["content"][1]["url"].size == (10, 9)


def test_volumes_that_cannot_be_shown(doc, tmp_path):
    with pytest.raises(MedTasksError, match="chat models take no files of volumes; set slices under"):
        messages(doc, {"template": TEXT, "slices": 0})
    files = list((tmp_path / "volumes").iterdir())
    for file in files:
        file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(SourceError, match=r"the volume of sample 0 is broken \(it cannot be unpacked"):
        volumes(doc, {"slices": 2})
    for file in files:
        file.unlink()
    for slices in (0, 8):
        gone = r"the volume of sample 0 is missing; put .*0\.nii\.gz back, or run 'medtasks"
        with pytest.raises(SourceError, match=gone):
            volumes(doc, {"slices": slices})
