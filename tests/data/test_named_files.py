"""Files that tables, studies and archives name or hold: attacks on what is opened, copied and kept in memory."""

import gzip
import io
import json
import os
import stat
import struct
import sys
import tarfile
import zipfile
import zlib
from types import SimpleNamespace

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

from medtasks.curate.report_studies import made_study, planned_study
from medtasks.curate.study import IMAGES, StudyKind, read_images
from medtasks.data import named_files
from medtasks.data.catalogue import Access
from medtasks.data.document_store import with_image_files
from medtasks.data.images.decoding import LINEAR, REFERENCE, decode_image
from medtasks.data.images.image_store import ImageStore
from medtasks.data.images.square_pixels import with_square_pixels
from medtasks.data.images.strict_pillow import UnreadableImage
from medtasks.data.images.volume_files import HEADER_BYTES
from medtasks.data.images.volume_rule import VolumeRule
from medtasks.data.images.volume_slices import grey_volume, show_volume
from medtasks.data.named_files import named_file
from medtasks.data.prepare.source_files import SourceFile, file_reader
from medtasks.data.prepare.source_tables import ParquetTable, csv_table, json_lines, read_json
from medtasks.data.sources.iu_xray import _OpenI
from medtasks.data.sources.multimedeval.question_sets import OwnQuestions, Slake
from medtasks.data.sources.multimedeval.x_rays import read_dicom
from medtasks.data.table_files import read_table
from medtasks.errors import MedTasksError, SourceError, UnusableFile
from medtasks.home import append_whole, dataset_holding, home, make_folder, written_whole

from ..medical_files import nifti, put_dicom
from ..multimedeval_sources import picture, put
from ..tables import each_row

PRIVATE = "multimedeval_mimic_cxr_report"
IS_PIPE = "it is a device or a pipe, and no file"


@pytest.fixture
def secret(home):
    """An image of a credentialed set."""
    return put(home / "datasets" / PRIVATE / "images" / "1.jpg", picture(7))


def put_pipe(path):
    if not hasattr(os, "mkfifo"):
        pytest.skip("there are no pipes here")
    os.mkfifo(path)


def place_attacks(folder, secret):
    """Put links and devices into a folder; return every name in a table that has to be refused."""
    outside = put(folder.parent / "outside.jpg", picture(8))
    put(folder / "own.jpg", picture(9))
    put_pipe(folder / "pipe.jpg")
    targets = {
        "zero.jpg": "/dev/zero",
        "link.jpg": outside,
        "secret.jpg": secret,
        "far": outside.parent,
    }
    for name, target in targets.items():
        (folder / name).symlink_to(target)
    return [
        *targets,
        "pipe.jpg",
        "far/outside.jpg",
        "../outside.jpg",
        "/dev/zero",
        str(secret),
        str(outside),
    ]


def test_a_name_in_a_table_opens_only_regular_files_below_its_folder(tmp_path, secret):
    folder = tmp_path / "imgs"
    folder.mkdir()
    (tmp_path / "linked").symlink_to(folder)
    refused = place_attacks(folder, secret)

    for root in (folder, tmp_path / "linked"):
        with file_reader([root], (), ()) as read:
            assert read("own.jpg") == picture(9)
            for name in [name for name in refused if name != "far"]:
                with pytest.raises(
                    UnusableFile, match=r"a device or a pipe|is outside of .* put a copy into"
                ):
                    read(name)
            for name in ("missing.jpg", "", "far", "a\0b"):  # of no file
                with pytest.raises((FileNotFoundError, UnusableFile)):
                    read(name)


def test_the_whole_disk_is_no_place_to_take_images_of_prepared_sets_from(home, secret):
    with pytest.raises(UnusableFile, match="in a prepared dataset"):
        named_file(secret, home)
    scratch = put(
        home / "datasets" / ".preparing-slake" / "scratch" / "source" / "1.jpg", picture(1)
    )
    assert named_file(scratch) == scratch  # where downloads are


def test_links_of_the_hubs_cache_lead_to_its_files(tmp_path):
    blob = put(tmp_path / "datasets--x--y" / "blobs" / "abc", picture(1))
    link = tmp_path / "datasets--x--y" / "snapshots" / "1" / "imgs" / "1.jpg"
    link.parent.mkdir(parents=True)
    link.symlink_to(blob)
    assert named_file(link) == link


@each_row("kind", ["slake", "own"])
def test_no_image_from_elsewhere_is_copied_into_a_dataset(tmp_path, secret, kind):
    source = tmp_path / "source"
    (source / "imgs").mkdir(parents=True)
    names = [name for name in place_attacks(source / "imgs", secret) if name != "far"]

    if kind == "slake":
        rows = [{"qid": at, "img_name": name} for at, name in enumerate([*names, "own.jpg"])]
        text = {"question": "?", "answer": "a", "q_lang": "en", "content_type": None}
        (source / "test.json").write_text(json.dumps([{**row, **text} for row in rows]))
        recipe = Slake().recipe("", ("test",))
    else:
        samples = [
            {"question": "?", "answer": "a", "images": [name]} for name in [*names, "own.jpg"]
        ]
        source = source / "imgs"
        content = {"taskType": "VQA", "modality": "", "samples": samples}
        (source / "dataset.json").write_text(json.dumps(content))
        recipe = OwnQuestions(source).own_recipe()

    *refused, own = recipe.test_rows(source, ImageStore(tmp_path / "work"))

    assert own.document is not None
    assert [row.document for row in refused] == [None] * len(names)
    assert all("cannot be read (" in row.cause or "is broken (" in row.cause for row in refused)
    stored = [path.read_bytes() for path in (tmp_path / "work" / "images").iterdir()]
    assert stored == [picture(9)]


def test_a_path_belongs_to_a_dataset_however_it_is_spelled(home, secret, tmp_path, monkeypatch):
    (tmp_path / "other_home").symlink_to(home)
    (tmp_path / "link.jpg").symlink_to(secret)
    monkeypatch.chdir(secret.parent)

    spelled = (
        secret,
        tmp_path / "link.jpg",
        tmp_path / "other_home" / secret.relative_to(home),
    )
    for path in (*spelled, tmp_path / "x" / ".." / "link.jpg", type(secret)(secret.name)):
        assert dataset_holding(path) == PRIVATE

    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "other_home"))
    for path in spelled:
        assert dataset_holding(path) == PRIVATE


def test_files_of_a_dataset_on_another_disk_belong_to_it(home, tmp_path):
    moved = tmp_path / "disk" / "moved"
    put(moved / "images" / "1.jpg", picture(1))
    (home / "datasets").mkdir(parents=True, exist_ok=True)
    (home / "datasets" / "moved").symlink_to(moved)

    assert dataset_holding(moved / "images" / "1.jpg") == "moved"
    assert dataset_holding(tmp_path / "disk" / "else.jpg") is None


def test_a_volume_belongs_to_the_dataset_that_links_to_it(secret, tmp_path):
    (secret.parent / "volume.nii.gz").symlink_to(tmp_path / "disk" / "source.nii.gz")
    assert dataset_holding(secret.parent / "volume.nii.gz") == PRIVATE


def test_a_public_study_takes_no_image_of_a_credentialed_set(tmp_path, secret):
    reports = tmp_path / "reports.jsonl"
    (tmp_path / "link.jpg").symlink_to(secret)
    for number, image in enumerate(
        (str(secret), "link.jpg", os.path.relpath(secret, tmp_path))
    ):
        reports.write_text(
            json.dumps({"id": "1", "image": image, "report": "No effusion."}) + "\n"
        )
        folder = tmp_path / f"study{number}"
        planned = planned_study(reports, folder, StudyKind.VISUAL_OPEN, None, Access.PUBLIC)
        with pytest.raises(
            MedTasksError,
            match=rf"line 1 of .*{IMAGES} is an image of '{PRIVATE}'.* cannot be public",
        ):
            made_study(folder, planned)
        assert not (folder / "study.json").exists()


def test_a_study_of_credentialed_images_that_calls_itself_public_is_not_read(tmp_path, secret):
    """One that came from elsewhere."""
    reports = tmp_path / "reports.jsonl"
    row = {"id": "1", "image": os.path.relpath(secret, tmp_path), "report": "No effusion."}
    reports.write_text(json.dumps(row) + "\n")
    folder = tmp_path / "kept"
    planned = planned_study(reports, folder, StudyKind.VISUAL_OPEN, None, Access.CREDENTIALED)
    made_study(folder, planned)
    path = folder / "study.json"
    path.write_text(path.read_text().replace('"credentialed"', '"public"'))

    with pytest.raises(MedTasksError, match="cannot be public"):
        read_images(folder)


# ---- images ----


@pytest.fixture
def owned(tmp_path, monkeypatch):
    """The file that a stand-in for Ghostscript writes if it is started."""
    written = tmp_path / "OWNED"
    program = tmp_path / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {written}\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)
    return written


@pytest.fixture
def postscript(tmp_path):
    path = tmp_path / "x.png"
    path.write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"
    )
    return path


NO_IMAGE = r"^it is no image that can be read \(PNG, JPEG, .*DICOM\)$"


def test_postscript_starts_no_program(owned, postscript):
    for decoding in (LINEAR, REFERENCE):
        with pytest.raises(UnreadableImage, match=NO_IMAGE):
            decode_image(postscript, decoding)
    assert not owned.exists()


def test_pillow_on_its_own_starts_a_program(owned, postscript):
    with Image.open(postscript) as image, pytest.raises(Exception, match=r".*"):
        image.load()
    assert owned.exists()


def test_formats_that_no_benchmark_has_are_refused(tmp_path):
    tga = tmp_path / "y.png"
    Image.new("RGB", (4, 4)).save(tga, "TGA")
    for decoding in (LINEAR, REFERENCE):
        with pytest.raises(UnreadableImage, match=NO_IMAGE):
            decode_image(tga, decoding)


def test_a_device_or_a_pipe_is_no_image(tmp_path):
    put_pipe(tmp_path / "pipe.png")
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    for name in ("pipe.png", "zero.png"):
        for decoding in (LINEAR, REFERENCE):
            with pytest.raises(UnreadableImage, match=IS_PIPE):
                decode_image(tmp_path / name, decoding)


def png(width, height, depth, colour):
    """A PNG file whose header promises this size, and which holds next to nothing."""

    def chunk(name, data):
        return (
            struct.pack(">I", len(data))
            + name
            + data
            + struct.pack(">I", zlib.crc32(name + data))
        )

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0"))
        + chunk(b"IEND", b"")
    )


@each_row(
    ("data", "is_refused"),
    [
        (png(13000, 13000, 16, 0), True),
        (png(8000, 8000, 16, 2), True),
        (png(13000, 13000, 8, 6), True),  # transparent
        (png(6000, 6000, 16, 0), False),
        (png(13000, 13000, 8, 0), False),
    ],
)
def test_an_image_that_would_fill_the_memory_is_refused_before_it_is_decoded(
    monkeypatch, data, is_refused
):
    def load(image):
        raise OSError("decoding began")

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", load)
    with pytest.raises(
        UnreadableImage, match="takes more than 1,800 MB" if is_refused else "decoding began"
    ):
        decode_image(io.BytesIO(data), LINEAR)


def test_floats_of_a_tiff_file_that_would_fill_the_memory(monkeypatch):
    stream = io.BytesIO()
    Image.fromarray(np.zeros((10, 10), np.float32)).save(stream, "TIFF")
    monkeypatch.setattr("medtasks.data.images.decoding.MOST_MEMORY", 45 * 100)
    decode_image(stream, LINEAR)
    monkeypatch.setattr("medtasks.data.images.decoding.MOST_MEMORY", 45 * 100 - 1)
    with pytest.raises(UnreadableImage, match="takes more than"):
        decode_image(stream, LINEAR)


def test_damage_that_pillow_reports_in_its_own_ways(monkeypatch):
    for error in (
        RuntimeError("Failed to decode frame 0"),
        NotImplementedError("pixel format"),
        KeyError("x"),
    ):

        def fail(image, error=error):
            raise error

        monkeypatch.setattr("PIL.ImageFile.ImageFile.load", fail)
        with pytest.raises(UnreadableImage):
            decode_image(io.BytesIO(png(2, 2, 8, 0)), LINEAR)


@each_row(("rows", "is_refused"), [(8000, True), (5000, False)])
def test_a_dicom_file_that_would_fill_the_memory_is_refused_before_its_pixels_are_read(
    tmp_path, rows, is_refused
):
    pytest.importorskip("pydicom")
    path = put_dicom(
        tmp_path / "x.dcm", np.zeros((2, 2), np.uint16), fields={"Rows": rows, "Columns": 8000}
    )
    for source in (path, io.BytesIO(path.read_bytes())):
        with pytest.raises(
            UnreadableImage,
            match="takes more than 1,800 MB" if is_refused else "number of bytes",
        ):
            decode_image(source, LINEAR)
    with pytest.raises(
        OSError, match="takes more than 1,800 MB" if is_refused else "number of bytes"
    ):
        read_dicom(path)  # as MultiMedEval does


def test_a_number_of_a_dicom_file_that_is_cut(tmp_path):
    pytest.importorskip("pydicom")
    path = put_dicom(tmp_path / "x.dcm", np.zeros((2, 2), np.uint16))
    data = path.read_bytes()
    rows = b"\x28\0\x10\0US\2\0\2\0"  # tag, kind, length and number
    assert rows in data
    path.write_bytes(data.replace(rows, b"\x28\0\x10\0US\3\0\2\0\0"))
    with pytest.raises(UnreadableImage, match="Expected total bytes to be an even multiple"):
        decode_image(path, LINEAR)


def test_an_image_of_flat_pixels_is_not_stretched_over_the_memory():
    with pytest.raises(UnusableFile, match="takes more than 1,800 MB"):
        with_square_pixels(Image.new("L", (3000, 2000)), 1, 40)
    assert with_square_pixels(Image.new("L", (3000, 2000)), 1, 2).size == (6000, 2000)


def test_what_is_deflated_in_a_dicom_file_is_limited(tmp_path, monkeypatch):
    pydicom = pytest.importorskip("pydicom")
    path = put_dicom(
        tmp_path / "x.dcm", np.arange(40000, dtype=np.uint16).reshape(200, 200) % 4096
    )
    dataset = pydicom.dcmread(path)
    dataset.file_meta.TransferSyntaxUID = pydicom.uid.DeflatedExplicitVRLittleEndian
    dataset.save_as(tmp_path / "deflated.dcm")
    for source in (
        tmp_path / "deflated.dcm",
        io.BytesIO((tmp_path / "deflated.dcm").read_bytes()),
    ):
        assert (
            decode_image(source, LINEAR).pixels.tobytes()
            == decode_image(path, LINEAR).pixels.tobytes()
        )
        monkeypatch.setattr("medtasks.data.images.dicom_images.MOST_WHOLE", 80000)
        monkeypatch.setattr(named_files.check_size, "__defaults__", (80000, "it"))
        with pytest.raises(UnreadableImage, match="takes more than 0 MB"):
            decode_image(source, LINEAR)
        monkeypatch.undo()


def test_a_volume_whose_header_promises_more_than_the_memory(tmp_path):
    data = bytearray(nifti(np.zeros((2, 2, 2), np.uint8)))
    struct.pack_into("<3h", data, 42, 30000, 30000, 30000)
    path = tmp_path / "v.nii.gz"
    path.write_bytes(gzip.compress(bytes(data)))
    for read in (show_volume, grey_volume):
        with pytest.raises(OSError, match="takes more than 1,800 MB"):
            read(path)


def test_what_follows_the_voxels_of_a_volume_is_not_read(tmp_path, monkeypatch):
    path = tmp_path / "v.nii.gz"
    data = nifti(np.arange(8, dtype=np.uint8).reshape(2, 2, 2))
    path.write_bytes(gzip.compress(data + bytes(1 << 20)))
    lengths = []
    read = gzip.GzipFile.read
    monkeypatch.setattr(
        gzip.GzipFile, "read", lambda file, size=-1: lengths.append(size) or read(file, size)
    )
    assert len(show_volume(path, VolumeRule(slices=2)).images) == 2
    assert all(0 < length <= max(HEADER_BYTES, len(data) + 1) for length in lengths)


# ---- archives and tables ----


@pytest.fixture
def small_limits(monkeypatch):
    """Limits of a megabyte for what is read whole, and of a kilobyte for a line."""
    whole, text = 1 << 20, 1 << 10
    for name in [name for name in sys.modules if name.startswith("medtasks.")]:
        for constant, value in (("MOST_WHOLE", whole), ("MOST_TEXT", text)):
            if hasattr(sys.modules[name], constant):
                monkeypatch.setattr(f"{name}.{constant}", value)
    for function in (named_files.check_size, named_files.read_file, named_files.read_stream):
        monkeypatch.setattr(
            function, "__defaults__", (whole, *(function.__defaults__ or ())[1:])
        )


BOMB = bytes(3 << 20)


@pytest.fixture
def zipped_bomb(tmp_path, small_limits):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        # Noise, so that its size as a whole passes for that of a real one.
        archive.writestr("noise", os.urandom(1 << 16))
        archive.writestr("1.png", BOMB)
    return path


def test_a_member_of_a_zip_archive_is_limited(zipped_bomb):
    with (
        file_reader((), [zipped_bomb], ("",)) as read,
        pytest.raises(UnusableFile, match="takes more than 1 MB"),
    ):
        read("1.png")


def test_a_zip_archive_in_place_of_a_table_is_limited(zipped_bomb):
    with pytest.raises(SourceError, match=r"cannot be read: it takes more than 1 MB"):
        read_table(zipped_bomb)


def test_a_member_of_a_tar_archive_is_limited(tmp_path, small_limits):
    packed = tmp_path / "NLMCXR_png.tgz"
    with tarfile.open(packed, "w:gz") as archive:
        member = tarfile.TarInfo("1.png")
        member.size = len(BOMB)
        archive.addfile(member, io.BytesIO(BOMB))

    with pytest.raises(UnusableFile, match="takes more than 1 MB"):
        list(_OpenI(tmp_path / "unpacked").unpacked_files(tmp_path, packed.name, ".png"))

    assert not (tmp_path / "unpacked" / "1.png").exists()


def test_a_packed_table_is_limited(tmp_path, small_limits):
    table = tmp_path / "t.csv.gz"
    table.write_bytes(gzip.compress(b"a,b\n" + b"x" * (3 << 20) + b",y\n"))

    with pytest.raises(SourceError, match=r"a line of t.csv.gz takes more than"):
        list(csv_table(SourceFile(table), ("a", "b")).rows())
    with pytest.raises(SourceError, match=r"t.csv.gz cannot be read: it takes more than 1 MB"):
        read_table(table)


@each_row(
    "text",
    [
        "a\n" + "1\n" * 3000,
        "a\r" + "1\r" * 3000,
        "a" + ",b" * 20000,
        '[{"a": [' + "0," * 20000 + "0]}]",
    ],
)
def test_rows_and_values_of_a_table_are_limited_and_not_only_its_bytes(
    tmp_path, monkeypatch, text
):
    monkeypatch.setattr("medtasks.data.table_files.MOST_MEMORY", 1_800_000)
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(SourceError, match="cannot be read: it takes more than 2 MB"):
        read_table(path, "json" if text.startswith("[") else "csv")
    path.write_text("a\n" + "word " * 40000)
    assert len(read_table(path).rows) == 1


def test_one_line_or_one_json_text_cannot_fill_the_memory(tmp_path, small_limits):
    path = tmp_path / "x.jsonl"
    path.write_text("[" + "[]," * 1000 + "[]]\n")
    with pytest.raises(SourceError, match=r"a line of x.jsonl takes more than"):
        list(json_lines(SourceFile(path), ()).rows())
    with pytest.raises(SourceError, match=r"x.jsonl takes more than"):
        read_json(SourceFile(path))
    path.write_text("a\tb\n" + '"' + "x\n" * 1000 + '"\ty\n')  # a field that goes over lines
    with pytest.raises(SourceError, match="field larger than field limit"):
        list(csv_table(SourceFile(path), ("a", "b"), tabs=True).rows())


def test_half_a_surrogate_pair_in_a_source_is_no_text(tmp_path):
    content = {
        "taskType": "VQA",
        "modality": "",
        "samples": [{"question": "\ud800", "answer": "a"}],
    }
    (tmp_path / "dataset.json").write_text(json.dumps(content))
    with pytest.raises(
        SourceError, match=r"dataset.json: it holds half a surrogate pair, which is no text"
    ):
        OwnQuestions(tmp_path)
    (tmp_path / "x.jsonl").write_text('{"q": "\\ud83d\\ude00"}\n{"q": "\\ud83d"}\n')
    rows = json_lines(SourceFile(tmp_path / "x.jsonl"), ("q",)).rows()
    assert next(rows).text("q") == "\U0001f600"
    with pytest.raises(SourceError, match=r"x.jsonl row 2: it holds half a surrogate pair"):
        next(rows)


def test_texts_of_a_parquet_file_that_are_no_texts(tmp_path):
    path = tmp_path / "test-00000-of-00001.parquet"
    texts = pyarrow.array([b"fine", b"\xff\xfe\xff"], pyarrow.binary()).view(pyarrow.string())
    pyarrow.parquet.write_table(pyarrow.table({"question": texts}), path)
    with pytest.raises(SourceError, match=r"is damaged in row group 1; download it again"):
        list(ParquetTable([SourceFile(path)], ("question",)).rows())


def test_a_report_named_by_more_digits_than_python_reads(monkeypatch, tmp_path):
    reports = {}
    for stem in ("7" * 5000, "10", "2", "x"):
        data = f"<r><uId id='CXR{stem[:3]}'/></r>".encode()
        reports[stem] = SimpleNamespace(stem=stem, name=f"{stem}.xml", data=data)
    monkeypatch.setattr("medtasks.data.sources.iu_xray.read_named", lambda path: path.data)
    monkeypatch.setattr(_OpenI, "unpacked_files", lambda *_: iter(reports.values()))
    rows = _OpenI(tmp_path).table(tmp_path, "test").rows()
    assert [row.text("id") for row in rows] == ["CXRx", "CXR2", "CXR10", "CXR777"]


# ---- modes ----


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def _usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


WRITERS = (
    lambda: make_folder(home() / "datasets"),
    lambda: append_whole(home() / "replies" / "t" / "x.jsonl", b"x"),
    lambda: written_whole(home() / "a" / "b").__enter__().write_text(""),
)


@pytest.mark.usefixtures("_usual_umask")
@each_row("write", WRITERS)
def test_a_new_data_folder_is_its_owners(tmp_path, monkeypatch, write):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "deep" / "home"))

    write()

    folders = [home(), *(path for path in home().rglob("*") if path.is_dir())]
    assert {mode(folder) for folder in folders} == {0o700}
    assert mode(tmp_path / "deep") == 0o755  # which is no folder of ours


@pytest.fixture
def shared(tmp_path, monkeypatch, _usual_umask):
    """A data folder that the user made."""
    folder = tmp_path / "shared"
    folder.mkdir()
    monkeypatch.setenv("MEDTASKS_HOME", str(folder))
    return folder


def test_a_data_folder_that_exists_keeps_its_mode(shared):
    make_folder(home() / "datasets")
    assert (mode(shared), mode(shared / "datasets")) == (0o755, 0o755)


def test_images_taken_from_a_table_are_their_owners(shared):
    table = pytest.importorskip("datasets").Dataset.from_dict(
        {"q": ["?"], "image": [picture(1)]}
    )

    with_image_files(table, "image_file", ["image"], ["row 1"])

    (image,) = (shared / "embedded_images").iterdir()
    assert (mode(image.parent), mode(image), os.umask(0o022)) == (0o700, 0o600, 0o022)
