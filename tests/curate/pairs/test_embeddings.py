"""Embeddings on disk: computed once, whatever ends a run, and refused or left out where they are none."""

import hashlib
import sqlite3
import sys
from contextlib import closing

import numpy as np
import pytest
from PIL import Image

from medtasks.curate.pairs.encoders import Encoder, embedded, file_digests
from medtasks.errors import MedTasksError
from medtasks.home import HOME_VARIABLE

from .. import tiny_encoders


class Eye:
    """Encodes an image as three numbers, and notes what it saw."""

    def __init__(self, change=lambda vectors: vectors):
        self.seen, self.loads, self.change = [], 0, change

    def encoder(self, digest="d1"):
        return Encoder("eye", digest, self.load)

    def load(self):
        self.loads += 1
        return self.encode

    def encode(self, images):
        self.seen.append(len(images))
        return self.change(np.stack([np.asarray(image, float)[5, 5] + 1 for image in images]))


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    return tmp_path / "home/embeddings/d1.sqlite"


@pytest.fixture
def files(tmp_path, store):
    made = [tmp_path / f"{number}.png" for number in range(10)]
    for number, file in enumerate(made):
        tiny_encoders.drawn(number % 9).save(file)  # the last one is the first one
    return made


def kept(store):
    with closing(sqlite3.connect(store)) as connection:
        return dict(connection.execute("SELECT * FROM images"))


def embed(files, eye, digest="d1", batch_size=4):
    encoder = eye.encoder(digest) if isinstance(eye, Eye) else Encoder("eye", digest, lambda: eye)
    return embedded(files, file_digests(files), encoder, batch_size)


def test_each_image_is_encoded_once_and_kept_at_length_one(files, store):
    eye = Eye()
    found = embed(files, eye)
    assert file_digests(files[:1]) == [hashlib.sha256(files[0].read_bytes()).digest()]
    assert eye.seen == [4, 4, 1]
    assert found.kept.tolist() == list(range(10))
    colour = np.asarray(Image.open(files[3]), float)[5, 5] + 1
    np.testing.assert_allclose(found.vectors[3], colour / np.linalg.norm(colour), atol=1e-3)
    assert found.vectors.dtype == np.float16
    again = embed(files[:5], eye)
    assert (eye.loads, eye.seen) == (1, [4, 4, 1])
    np.testing.assert_array_equal(again.vectors, found.vectors[:5])
    assert [(len(digest), len(vector)) for digest, vector in kept(store).items()] == [(32, 2 * 3)] * 9
    assert store.stat().st_mode & 0o077 == 0
    embed(files, eye, "d2")
    assert eye.loads == 2


def test_what_is_lost_is_computed_again_and_nothing_else(files, store):
    whole = embed(files, Eye()).vectors
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("DELETE FROM images WHERE key IN (SELECT key FROM images LIMIT 3)")
    eye = Eye()
    np.testing.assert_array_equal(embed(files, eye).vectors, whole)
    assert eye.seen == [3]
    store.write_bytes(b"no database at all" * 100)
    np.testing.assert_array_equal(embed(files, Eye()).vectors, whole)
    store.unlink()
    store.mkdir()
    with pytest.raises(MedTasksError, match=r"cannot keep embeddings in .*d1\.sqlite \(.*; make room and run it again"):
        embed(files, Eye())


def test_images_that_cannot_be_read_or_encoded_are_left_out_and_counted(files, monkeypatch):
    files[2].write_bytes(files[2].read_bytes()[:80])
    files[4].unlink()
    Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8)).save(files[5])
    files[6].write_bytes(bytes(128) + b"DICM")
    monkeypatch.setitem(sys.modules, "pydicom", None)

    def change(vectors):
        bad = {1: np.nan, 2: 0.0, 3: np.inf}
        vectors[:, :] = [vector * bad.get(at, 1.0) for at, vector in enumerate(vectors)]
        return vectors

    found = embed(files, Eye(change), batch_size=9)
    assert found.left_out == {
        "image cannot be read": 2,
        "without a usable embedding": 3,
        "nothing says which values of an image are black and white; save it with 8 bits": 1,
        "a DICOM file needs pydicom; install it with `pip install 'medtasks[dicom]'`": 1,
    }
    assert found.kept.tolist() == [0, 8, 9]
    assert np.isfinite(found.vectors).all()


def test_an_image_that_an_encoder_fails_on_does_not_end_the_run(files):
    eye = Eye()

    def encode(images):
        if any(image.size[0] == 80 for image in images):
            raise ValueError("too wide")
        return eye.encode(images)

    for number in (0, 1, 8):  # a whole first batch, and a last one
        Image.new("RGB", (80, 4), (9, number, 9)).save(files[number])
    found = embed(files[:9], encode, batch_size=2)
    assert found.left_out == {"without a usable embedding": 3}
    assert found.kept.tolist() == [2, 3, 4, 5, 6, 7]


def test_an_encoder_that_always_fails_or_no_more_is_refused(files):
    for good, batch_size in ((0, 4), (1, 1)):
        eye = Eye()

        def encode(images, eye=eye, good=good):
            if len(eye.seen) >= good:
                raise RuntimeError("out of memory")
            return eye.encode(images)

        with pytest.raises(MedTasksError, match=r"encoder eye fails \(RuntimeError: out of memory\); give a smaller"):
            embed(files, encode, batch_size=batch_size)


def test_what_is_no_array_of_vectors_or_of_another_size_is_refused(files, store):
    for change in (lambda vectors: vectors[0], lambda vectors: vectors[:1], lambda vectors: vectors[:, :0]):
        with pytest.raises(MedTasksError, match="returned an array of shape"):
            embed(files, Eye(change))

    def ragged(images):
        return np.stack([np.asarray(image).reshape(-1) for image in images])

    tiny_encoders.drawn(0, (50, 40)).save(files[1])
    with pytest.raises(MedTasksError, match="vectors of different lengths"):
        embed(files, ragged, "d4")
    embed(files[:5], Eye())
    before = kept(store)
    with pytest.raises(MedTasksError, match=r"gives 2 numbers per image, and .* holds embeddings of 3"):
        embed(files, Eye(lambda vectors: vectors[:, :2]))
    assert kept(store) == before
