"""Images and volumes as RadFM takes them, and through the harness: files, arrays and lists of slices."""

import random
import re

import nibabel
import numpy as np
import pytest
import torch
from medtasks.model_adapters.base.batching import GenerationSettings
from medtasks.model_adapters.base.requests import VOLUMES, Request, RequestReader
from medtasks.model_adapters.radfm.network import image_volume, random_crop_box, read_volume
from PIL import Image

from medtasks.errors import MedTasksError
from medtasks.extract.failure import failure_cause

from ..tables import each_row
from . import radfm_toy
from .radfm_toy import adapter
from .toys import SPLIT, TASK, instances, noise

SIDE = 8


def test_volumes_get_the_closest_depth(radfm):
    def depth(*depths):
        return radfm.encode("", [np.zeros((2, 2, depth)) for depth in depths]).pixels.shape[-1]

    table = {
        1: 4,
        4: 4,
        5: 4,
        6: 4,
        7: 8,
        10: 8,
        11: 12,
        30: 28,
        31: 32,
        62: 60,
        63: 64,
        64: 64,
        500: 64,
    }
    assert {given: depth(given) for given in table} == table
    assert depth(1, 23, 4) == 24


def test_volumes_are_resized_by_the_nearest_voxel(radfm):
    flat, deep = noise(), np.random.default_rng(0).random((3, 4, 32, 14))

    stacked = radfm.encode("", [flat, deep]).pixels

    side = radfm_toy.SIDE
    assert stacked.shape == (2, 3, side, side, 12)
    assert torch.equal(stacked[0], image_volume(flat, side).expand(-1, -1, -1, 12))
    rows, columns = np.arange(side) // 4, np.arange(side) * 2
    wanted = deep[:, rows][:, :, columns][..., np.arange(12) * 14 // 12]
    assert torch.equal(stacked[1], torch.from_numpy(wanted.astype(np.float32)))


def test_a_prompt_without_images_has_a_black_volume(radfm):
    side = radfm_toy.SIDE
    assert torch.equal(radfm.encode("", []).pixels, torch.zeros(1, 3, side, side, 4))


@each_row("mode", ["RGB", "L", "RGBA", "P"])
def test_the_whole_picture_is_resized_and_not_normalised(mode):
    picture = noise(mode=mode)
    expected = (
        np.asarray(picture.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC)) / 255
    )
    volume = image_volume(picture, SIDE)
    assert (volume.shape, volume.dtype) == ((3, SIDE, SIDE, 1), torch.float32)
    np.testing.assert_allclose(volume[..., 0].permute(1, 2, 0).numpy(), expected, atol=1e-7)


def test_crops_depend_on_their_own_seed():
    torch.manual_seed(0)
    random.seed(0)
    first = image_volume(noise(), SIDE, 0)
    torch.manual_seed(1)
    random.seed(1)
    untouched = random.getstate()

    assert torch.equal(image_volume(noise(), SIDE, 0), first)
    assert random.getstate() == untouched
    assert not torch.equal(image_volume(noise(), SIDE, 1), first)
    assert not torch.equal(first, image_volume(noise(), SIDE))


def test_crops_depend_on_the_content():
    """Another image has another part cut out, not only another pixel."""
    other = noise()
    other.putpixel((0, 0), (1, 2, 3))
    assert (image_volume(other, SIDE, 0) - image_volume(noise(), SIDE, 0)).abs().mean() > 0.01


@pytest.fixture
def boxes():
    """Edges of 500 crops of an image of 400 times 300 pixels: left, top, right, bottom."""
    generator = random.Random(0)
    return np.array([random_crop_box(400, 300, generator) for _ in range(500)]).T


def test_crops_lie_within_the_image(boxes):
    lefts, tops, rights, bottoms = boxes
    assert lefts.min() >= 0
    assert tops.min() >= 0
    assert rights.max() <= 400
    assert bottoms.max() <= 300


def test_crops_cover_the_range_of_training(boxes):
    lefts, tops, rights, bottoms = boxes
    shares = (rights - lefts) * (bottoms - tops) / 120000
    aspects = (rights - lefts) / (bottoms - tops)
    assert 0.795 < shares.min() < 0.82
    assert 0.95 < shares.max() <= 1
    assert 0.745 < aspects.min() < 1.1
    assert 1.3 < aspects.max() < 1.345
    assert len(set(lefts)) > 20


def test_a_very_long_image_gives_its_largest_centred_part():
    assert random_crop_box(100, 10, random.Random(0)) == (43, 0, 56, 10)
    assert random_crop_box(10, 100, random.Random(0)) == (0, 43, 10, 56)


@each_row("channels", [None, 1, 3])
def test_arrays_and_files_give_the_same_volume(tmp_path, channels):
    voxels = np.random.default_rng(0).random(
        (5, 6, 7) if channels is None else (channels, 5, 6, 7)
    )
    np.save(tmp_path / "a.npy", voxels)
    np.savez(tmp_path / "a.npz", scan=voxels)
    expected = torch.from_numpy(np.broadcast_to(voxels, (3, 5, 6, 7)).astype(np.float32))
    for source in (voxels, tmp_path / "a.npy", str(tmp_path / "a.npz")):
        assert torch.equal(read_volume(source, SIDE), expected)


def test_slices_are_stacked_in_their_order():
    pictures = [noise(1), noise(2, (9, 40)), noise(3)]

    volume = read_volume(pictures, SIDE)

    assert volume.shape == (3, SIDE, SIDE, 3)
    for place, picture in enumerate(pictures):
        assert torch.equal(volume[..., place], image_volume(picture, SIDE)[..., 0])


def test_a_volume_needs_slices():
    with pytest.raises(MedTasksError, match="a volume without slices"):
        read_volume([], SIDE)


RAMP = np.arange(8).reshape(2, 2, 2)


def test_bytes_and_fractions_keep_their_scale():
    bytes_read = read_volume((RAMP * 30).astype(np.uint8), SIDE)[0].flatten().tolist()
    assert bytes_read == pytest.approx([30 * n / 255 for n in range(8)])
    assert torch.equal(
        read_volume(RAMP / 10, SIDE)[1], torch.from_numpy((RAMP / 10).astype(np.float32))
    )


def test_other_values_are_brought_to_0_to_1():
    for values in (RAMP * 400 - 1000, RAMP * 1.5):  # Hounsfield units; fractions above 1
        assert read_volume(values, SIDE)[2].flatten().tolist() == pytest.approx(
            [n / 7 for n in range(8)]
        )
    assert not read_volume(np.full((2, 2, 2), 40.0), SIDE).any()


@each_row(
    "voxels, message",
    [
        (np.zeros((4, 4)), r"the array has shape \(4, 4\); a volume is"),
        (np.full((2, 2, 2), np.nan), "no finite numbers"),
        (np.full((2, 2, 2), "a"), "values of type <U1; give numbers"),
    ],
)
def test_impossible_arrays_are_refused(voxels, message):
    with pytest.raises(MedTasksError, match=message):
        read_volume(voxels, SIDE)


def test_impossible_files_are_refused(tmp_path):
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY no")
    (tmp_path / "a.npz").write_bytes(b"PK no")
    (tmp_path / "b.nii").write_bytes(b"no")
    (tmp_path / "a.dcm").touch()
    np.savez(tmp_path / "two.npz", a=np.zeros(1), b=np.zeros(1))
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    for name, message in {
        "a.npy": "is damaged",
        "a.npz": "is damaged",
        "objects.npy": "is damaged or holds no plain array",
        "a.dcm": r"give a \.nii, \.nii\.gz, \.npy or \.npz",
        "two.npz": r"holds 2 arrays \(a, b\)",
        "none.nii.gz": "does not exist",
        "b.nii": "is damaged or no NIfTI file",
    }.items():
        with pytest.raises(MedTasksError, match=message) as refusal:
            read_volume(tmp_path / name, SIDE)
        assert str(tmp_path / name) in str(refusal.value)


def test_nifti_is_seen_as_it_is_printed(tmp_path):
    voxels = np.zeros((4, 5, 6), dtype=np.int16)
    voxels[3, 4, 5] = 1000  # rightmost, foremost, topmost
    for turned, affine in (
        (voxels, np.eye(4)),
        (voxels[..., None], np.eye(4)),
        (voxels[::-1], np.diag([-1, 1, 1, 1])),
    ):
        nibabel.save(nibabel.Nifti1Image(turned, affine), tmp_path / "a.nii.gz")
        volume = read_volume(tmp_path / "a.nii.gz", SIDE)
        assert volume.shape == (3, 5, 4, 6)
        assert volume[0].nonzero().tolist() == [[0, 0, 5]]


def test_a_series_of_volumes_in_one_file_is_refused(tmp_path):
    nibabel.save(
        nibabel.Nifti1Image(np.zeros((4, 5, 6, 2)), np.eye(4)), tmp_path / "series.nii"
    )
    with pytest.raises(
        MedTasksError, match=r"series\.nii has shape \(4, 5, 6, 2\); give one volume"
    ):
        read_volume(tmp_path / "series.nii", SIDE)


QUESTION, OPTIONS = "is the left lung clear?", (" yes", " a large effusion")
VOXELS = np.random.default_rng(0).integers(0, 256, (9, 11, 7), dtype=np.uint8)


def asked(model, visuals):
    docs = [{"question": QUESTION, "images": images} for images in visuals]
    model.task_dict = {TASK: {SPLIT: docs}}
    replies = model.generate_until(instances("generate_until", docs, [{"max_new_tokens": 6}]))
    return replies, model.loglikelihood(instances("loglikelihood", docs, OPTIONS))


def written(path, voxels=VOXELS):
    np.save(path, voxels)
    return path


def slices(count=5):
    return [noise(number) for number in range(count)]


def digests(*visuals):
    request = Request("", {}, lambda doc: doc, 0, "t", "s", 0, 0, False)
    return (
        RequestReader({"t": {"s": [list(visuals)]}}, scored=False, visual_types=VOLUMES)
        .read(request)
        .visuals.digests
    )


def test_every_kind_of_volume_is_answered_as_from_python(radfm_folder, tmp_path):
    file = written(tmp_path / "scan.npy")
    model = adapter(radfm_folder, max_failed=0, batch_size=4)
    docs = [
        [file],
        [str(file)],
        [VOXELS],
        [slices()],
        [noise(8), VOXELS],
        file,
        VOXELS,
        [VOXELS[:, :, :2]],
    ]

    replies, scores = asked(model, docs)
    assert not any(failure_cause(reply) for reply in replies)

    as_volumes = (
        [[VOXELS]] * 3
        + [[slices()], [noise(8), VOXELS]]
        + [[VOXELS]] * 2
        + [[VOXELS[:, :, :2]]]
    )
    prompts = [model.encode(QUESTION, volumes) for volumes in as_volumes]
    pairs = [
        model.encode_pair(QUESTION, option, volumes)
        for volumes in as_volumes
        for option in OPTIONS
    ]

    settings = GenerationSettings(6)
    assert replies == [model.generate_batch([prompt], settings, 0)[0] for prompt in prompts]
    assert [mean for mean, _ in scores] == pytest.approx(
        [model.score_batch([pair])[0].mean for pair in pairs], abs=1e-5
    )
    assert len({round(mean, 4) for mean, _ in scores}) == 2 * 4, (
        "file, text, array and bare ones are the same volume"
    )


def test_equal_volumes_have_one_digest(tmp_path):
    for same in (
        [VOXELS, VOXELS.copy()],
        [VOXELS, np.asfortranarray(VOXELS)],
        [slices(), tuple(slices())],
    ):
        assert len(set(digests(*same))) == 1
    file = written(tmp_path / "a.npy")
    assert digests(file) == digests(str(file)) == digests(written(tmp_path / "b.npy"))
    assert digests(Image.new("RGB", (2, 2))) == digests(Image.new("RGB", (2, 2)))


def test_a_digest_stands_for_content_type_and_shape(tmp_path):
    one_voxel = VOXELS.copy()
    one_voxel[8, 10, 6] ^= 1
    changed = slices()
    changed[4].putpixel((29, 20), (1, 2, 3))
    file = written(tmp_path / "a.npy")
    renamed = tmp_path / "a.npz"
    renamed.write_bytes(file.read_bytes())
    red, blue = Image.new("P", (2, 2)), Image.new("P", (2, 2))
    red.putpalette([255, 0, 0])
    blue.putpalette([0, 0, 255])
    others = [
        red,
        blue,
        Image.new("L", (2, 4)),
        Image.new("L", (4, 2)),
        VOXELS,
        one_voxel,
        VOXELS.transpose(1, 0, 2),
        VOXELS.view(np.int8),
        VOXELS.reshape(11, 9, 7),
    ]
    others += [
        slices(),
        slices()[::-1],
        slices(4),
        changed,
        [slices()[0]],
        slices()[0],
        file,
        renamed,
    ]

    assert len(set(digests(*others))) == len(others)


@each_row(
    "visuals, told",
    [
        ("SECRET.npy", "the task yields str"),
        ([VOXELS], "the task yields ndarray"),
        ([slices()], "the task yields list"),
    ],
)
def test_other_adapters_refuse_with_one_cause(new_bench, log, visuals, told):
    bench = new_bench(max_failed=1)
    (reply,) = bench.adapter.generate_until(bench.generation([0], visual=lambda doc: visuals))
    assert told in failure_cause(reply)
    assert "choose another task, or radfm for volumes" in failure_cause(reply)
    bench.adapter.loglikelihood(bench.scoring([" clear"], [0], visual=lambda doc: visuals))
    assert len(log) == 2
    assert "SECRET" not in "".join(log)


@each_row("journal", ["false", "j"])
def test_a_bad_volume_fails_alone_and_no_log_names_its_file(
    radfm_folder, tmp_path, log, journal
):
    (tmp_path / "SECRET.npz").write_bytes(b"no")
    bad = {
        r"cannot be read \(No such file|does not exist": [tmp_path / "SECRET none.npy"],
        "cannot be read|does not exist": [tmp_path],
        r"has shape \(3,\); a volume is": [written(tmp_path / "SECRET.npy", np.zeros(3))],
        "is damaged": [tmp_path / "SECRET.npz"],
        "a list of something other than PIL images": [["SECRET.npy"]],
        "a volume without slices": [[]],
        "the task yields int": [7],
    }

    model = adapter(
        radfm_folder,
        max_failed=1,
        journal=journal if journal == "false" else str(tmp_path / journal),
    )

    (*failed, good), scores = asked(model, [*bad.values(), [VOXELS]])
    for cause, reply in zip(bad, failed, strict=True):
        assert re.search(cause, failure_cause(reply)), cause
    assert failure_cause(good) is None
    assert [np.isnan(loss) for loss, _ in scores] == [True] * 2 * len(bad) + [False] * 2

    for text in (*map(failure_cause, failed), *log):
        assert "SECRET" not in text
        assert str(tmp_path) not in text or "journal" in text
