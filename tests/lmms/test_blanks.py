"""Grey stand-ins for pictures and volumes."""

import gzip

import numpy as np
import pytest
from medtasks.model_adapters.radfm.network import read_volume
from PIL import Image

from medtasks.data.images.strict_pillow import UnreadableImage
from medtasks.data.images.volume_files import FOLDER_NAME, axial_slices, blank_volume, read_header, volume_digests
from medtasks.data.images.volume_files import blank_image as blank_picture
from medtasks.errors import MedTasksError, SourceError
from medtasks.prompts.volumes import volumes
from medtasks.tasks.documents import task_documents
from medtasks.tasks.task_files import task_file

from ..nifti_files import nifti, put_nifti, scan
from ..tables import each_row

TURNED = ((0, -1, 0), (1, 0, 0), (0, 0, 2))


@each_row("mode", ["L", "RGB", "P", "RGBA"])
def test_pictures(mode):
    grey = blank_picture(Image.new(mode, (7, 5)))
    assert (grey.mode, grey.size, grey.getcolors()) == ("RGB", (7, 5), [(35, (128, 128, 128))])


@each_row("directions", [((1, 0, 0), (0, 1, 0), (0, 0, 1)), TURNED])
def test_a_volume_of_the_same_size_and_orientation(tmp_path, monkeypatch, directions):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))
    path = tmp_path / "patient_5.nii.gz"
    path.write_bytes(gzip.compress(nifti(scan(1), directions)))
    blank = blank_volume(path)
    assert "patient" not in str(blank.relative_to(blank.parent.parent))
    before = read_header(gzip.decompress(path.read_bytes()))
    after = read_header(gzip.decompress(blank.read_bytes()))
    assert after.get_data_shape() == before.get_data_shape()
    assert np.array_equal(after.get_best_affine(), before.get_best_affine())
    assert volume_digests(blank).file != volume_digests(path).file
    assert [picture.size for picture in axial_slices(blank, 3)] == [picture.size for picture in axial_slices(path, 3)]
    assert blank_volume(path) == blank
    assert [file.name for file in blank.parent.iterdir()] == [blank.name]


def test_a_model_that_reads_volumes_sees_an_even_grey(tmp_path):
    path = put_nifti(tmp_path / "a.nii.gz", scan(1))
    seen, blank = read_volume(path, 8), read_volume(blank_volume(path), 8)
    assert blank.shape == seen.shape
    assert set(blank.unique().tolist()) == {0.5}


def test_volumes_that_cannot_be_read_or_written(tmp_path, monkeypatch):
    broken = tmp_path / "broken.nii.gz"
    broken.write_bytes(gzip.compress(b"x" * 1000)[:20])
    with pytest.raises(UnreadableImage):
        blank_volume(broken)
    broken.write_bytes(b"no gzip")
    with pytest.raises(OSError, match="gzip"):
        blank_volume(broken)
    with pytest.raises(FileNotFoundError):
        blank_volume(tmp_path / "none.nii.gz")
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    (tmp_path / FOLDER_NAME).write_text("a file is in the way")
    with pytest.raises(MedTasksError, match=r"cannot write a grey volume in .* set MEDTASKS_HOME"):
        blank_volume(put_nifti(tmp_path / "a.nii.gz", scan(1)))


def test_ct_scans(prepared):
    asked = task_documents(task_file("multimedeval_ct_rate_report_blank"))
    (file,) = volumes(asked[0], {"slices": 0})
    assert file.startswith(str(prepared / FOLDER_NAME))
    slices = volumes(asked[0], {"slices": 2})
    assert [len(picture.getcolors()) for picture in slices] == [1, 1]
    gone = {**asked[0], "image_files": ["images/none.nii.gz"]}
    for settings in ({"slices": 0}, {"slices": 2}):
        with pytest.raises(SourceError, match="is missing"):
            volumes(gone, settings)
