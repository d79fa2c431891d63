"""Volumes through the harness: files, arrays and lists of slices, which RadFM takes and no other adapter does."""

import re

import numpy as np
import pytest
from medtasks.model_adapters.base.generation import GenerationSettings
from medtasks.model_adapters.base.requests import VOLUMES, Request, RequestReader
from medtasks.model_adapters.radfm import RadFM

from medtasks.extract.failure import failure_cause

from ..tables import each_row
from .radfm_toy import adapter
from .toys import SPLIT, TASK, Counting, instances, noise

QUESTION, OPTIONS = "is the left lung clear?", (" yes", " a large effusion")
VOXELS = np.random.default_rng(0).integers(0, 256, (9, 11, 7), dtype=np.uint8)


class CountingRadFM(Counting, RadFM):
    pass


def asked(model, visuals):
    """Replies and scores of a task with one document per entry of ``visuals``."""
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
        RequestReader({"t": {"s": [list(visuals)]}}, scored=False, visual_types=VOLUMES).read(request).visuals.digests
    )


def test_every_kind_of_volume_is_answered_as_from_python(radfm_folder, tmp_path):
    file = written(tmp_path / "scan.npy")
    model = adapter(radfm_folder, max_failed=0, batch_size=4)
    docs = [[file], [str(file)], [VOXELS], [slices()], [noise(8), VOXELS], file, VOXELS, [VOXELS[:, :, :2]]]
    replies, scores = asked(model, docs)
    assert not any(failure_cause(reply) for reply in replies)
    as_volumes = [[VOXELS]] * 3 + [[slices()], [noise(8), VOXELS]] + [[VOXELS]] * 2 + [[VOXELS[:, :, :2]]]
    prompts = [model.encode(QUESTION, volumes) for volumes in as_volumes]
    pairs = [model.encode_pair(QUESTION, option, volumes) for volumes in as_volumes for option in OPTIONS]
    settings = GenerationSettings(6)
    assert replies == [model.generate_batch([prompt], settings, 0)[0] for prompt in prompts]
    assert [mean for mean, _ in scores] == pytest.approx(
        [model.score_batch([pair])[0].mean for pair in pairs], abs=1e-5
    )
    assert len({round(mean, 4) for mean, _ in scores}) == 2 * 4, "file, text, array and bare ones are the same volume"


def test_the_journal_goes_by_the_content_of_a_file(radfm_folder, tmp_path):
    first, moved = written(tmp_path / "a.npy"), written(tmp_path / "moved.npy")
    runs = []
    for doc in ([first], [moved], [first]):
        if len(runs) == 2:
            written(first, VOXELS ^ 255)
        model = CountingRadFM(pretrained=str(radfm_folder), device="cpu", dtype="float32", journal=str(tmp_path / "j"))
        runs.append((asked(model, [doc]), model.ran))
    assert [ran for _, ran in runs] == [3, 0, 3]
    assert runs[0][0] == runs[1][0]
    assert runs[2][0][1] != runs[0][0][1]


def test_a_digest_stands_for_content_type_and_shape(tmp_path):
    one_voxel = VOXELS.copy()
    one_voxel[8, 10, 6] ^= 1
    changed = slices()
    changed[4].putpixel((29, 20), (1, 2, 3))
    for same in ([VOXELS, VOXELS.copy()], [VOXELS, np.asfortranarray(VOXELS)], [slices(), tuple(slices())]):
        assert len(set(digests(*same))) == 1
    file = written(tmp_path / "a.npy")
    assert digests(file) == digests(str(file)) == digests(written(tmp_path / "b.npy"))
    renamed = tmp_path / "a.npz"
    renamed.write_bytes(file.read_bytes())
    others = [VOXELS, one_voxel, VOXELS.transpose(1, 0, 2), VOXELS.view(np.int8), VOXELS.reshape(11, 9, 7)]
    others += [slices(), slices()[::-1], slices(4), changed, [slices()[0]], slices()[0], file, renamed]
    assert len(set(digests(*others))) == len(others)


@each_row(
    "visuals, told",
    [
        (["SECRET.npy"], "the task yields str"),
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
@each_row(
    "make, told",
    [
        (lambda folder: [folder / "SECRET.npy"], r"cannot be read \(No such file|does not exist"),
        (lambda folder: [folder], "cannot be read|does not exist"),
        (lambda folder: [written(folder / "SECRET.npy", np.zeros(3))], r"has shape \(3,\); a volume is"),
        (lambda folder: [(folder / "SECRET.npy").write_bytes(b"no") and folder / "SECRET.npy"], "is damaged"),
        (lambda folder: [["SECRET.npy"]], "a list of something other than PIL images"),
        (lambda folder: [[]], "a volume without slices"),
        (lambda folder: [7], "the task yields int"),
    ],
)
def test_a_bad_volume_fails_alone_and_no_log_names_its_file(radfm_folder, tmp_path, log, journal, make, told):
    model = adapter(radfm_folder, max_failed=1, journal=journal if journal == "false" else str(tmp_path / journal))
    (bad, good), scores = asked(model, [make(tmp_path), [VOXELS]])
    assert re.search(told, failure_cause(bad))
    assert failure_cause(good) is None
    assert np.isnan(scores[0][0])
    assert np.isfinite(scores[2][0])
    for text in (failure_cause(bad), *log):
        assert "SECRET" not in text
        assert str(tmp_path) not in text or "journal" in text
