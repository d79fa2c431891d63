"""The manifest, and the fingerprints in it."""

import json

from PIL import Image

from medtasks.data.dataset_manifest import FILE_NAME, Manifest, pixels_fingerprint, text_fingerprint
from medtasks.data.images.decoding import REFERENCE, read_facts
from medtasks.errors import SourceError

from ..tables import each_row

FACTS = {
    "name": "mediconfusion",
    "source": "https://github.com/AIF4S/MediConfusion",
    "revision": "a3045b0",
    "access": "public",
    "sample": False,
    "complete": False,
    "rows": 350,
    "images": 227,
    "text_sha256": "1" * 64,
    "pixels_sha256": "2" * 64,
    "left_out": ["Übersicht.jpg is missing"],
}


def test_written_and_read_again_with_a_fingerprint_of_text_and_pixels(tmp_path):
    manifest = Manifest(**FACTS)
    manifest.write(tmp_path)
    assert Manifest.read(tmp_path) == manifest
    images = {"image_rule": "reference", "image_range": None, "image_conversions": {}}
    whole = {"selected_from": None, "selection": {}, **images}
    assert json.loads((tmp_path / FILE_NAME).read_text(encoding="utf-8")) == FACTS | whole
    changes = ({"text_sha256": "3" * 64}, {"pixels_sha256": "3" * 64}, {"source": "elsewhere"})
    others = [manifest.model_copy(update=change).fingerprint for change in changes]
    assert (len(manifest.fingerprint), len({*others}), others[2]) == (12, 3, manifest.fingerprint)


@each_row(
    "contents",
    [
        *(b"", b"{", b"[]", b"\xff\xfe", b'{"name": "x"}'),
        json.dumps(FACTS | {"rows": "many"}).encode(),
        json.dumps(FACTS | {"invented": 1}).encode(),
    ],
)
def test_damaged_manifest(tmp_path, refuses, contents):
    folder = tmp_path / "mediconfusion"
    folder.mkdir()
    (folder / FILE_NAME).write_bytes(contents)
    with refuses(f"{folder / FILE_NAME} is damaged", "medtasks data prepare mediconfusion", kind=SourceError):
        Manifest.read(folder)


def test_text_fingerprint_ignores_order_only():
    rows = [{"a": 1, "b": ["x", "y"]}, {"a": 2, "b": []}]
    whole = text_fingerprint(rows)
    assert text_fingerprint(reversed(rows)) == whole
    assert text_fingerprint([{"b": ["x", "y"], "a": 1}, rows[1]]) == whole
    assert text_fingerprint([{"a": 1, "b": ["y", "x"]}, rows[1]]) != whole
    assert text_fingerprint([*rows, rows[1]]) != whole
    assert text_fingerprint(rows[:1]) != whole


def test_pixel_digest_is_of_the_picture_and_the_fingerprint_knows_which_is_whose(tmp_path):
    pixels = Image.frombytes("L", (6, 4), bytes(range(24)))
    pixels.save(tmp_path / "a.png")
    pixels.convert("RGB").save(tmp_path / "a.bmp")
    Image.frombytes("L", (4, 6), bytes(range(24))).save(tmp_path / "turned.png")
    first, same, turned = (read_facts(tmp_path / name, REFERENCE) for name in ("a.png", "a.bmp", "turned.png"))
    assert first == same
    assert turned.sha256 != first.sha256
    assert pixels_fingerprint({"1": first, "2": turned}) == pixels_fingerprint({"2": turned, "1": first})
    assert pixels_fingerprint({"1": first, "2": turned}) != pixels_fingerprint({"1": turned, "2": first})
