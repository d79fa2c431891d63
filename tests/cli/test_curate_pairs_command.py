"""``medtasks curate pairs`` on small real encoders: the whole way, going on after a kill, and what it refuses."""

import json
import signal
import sys
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from medtasks.curate.study import read_images, read_pairs, read_study
from medtasks.home import HOME_VARIABLE

from ..processes import run_fresh

COUNT = 24
# Sees the first and second colour of an image; the other eye its noise. One says on paper what it saw, and dies.
EYES = """
import hashlib, os, pathlib, signal
import numpy as np
PAPER, FATAL = pathlib.Path("seen.txt"), pathlib.Path("fatal")
class Eye:
    digest = "1"
    def __init__(self, medical):
        self.medical, self.batches = medical, 0
    def encode(self, images):
        self.batches += 1
        if FATAL.exists() and self.batches == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        with PAPER.open("a") as paper:
            paper.writelines(f"{self.medical} {hashlib.sha256(image.tobytes()).hexdigest()}\\n" for image in images)
        pixels = np.stack([np.asarray(image.resize((64, 64)), float) for image in images])
        return pixels[:, 0, 0] if self.medical else pixels[:, 8:].reshape(len(pixels), -1) - 127.5
def medical(): return Eye(True)
def general(): return Eye(False)
def other(): return Eye(True)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Images whose first line says which are medically alike, and whose other lines are noise."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # the command adds this folder
    monkeypatch.delitem(sys.modules, "eyes_of_test", raising=False)
    draw = np.random.default_rng(0)
    rows = []
    for number in range(COUNT):
        pixels = draw.integers(0, 256, (64, 64, 3), np.uint8)
        pixels[:8] = np.eye(3)[number % 3] * 200 + 20
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
        group = {0: "a", 3: "a"}.get(number)
        rows.append({"id": f"i{number:02d}", "image": f"{number}.png", "caption": f"caption {number}", "group": group})
    write(tmp_path, rows)
    (tmp_path / "eyes_of_test.py").write_text(EYES)
    return tmp_path


def write(folder, rows):
    (folder / "list.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def rows_of(folder):
    return [json.loads(line) for line in (folder / "list.jsonl").read_text().splitlines()]


def eyes(medical="medical"):
    return ["--encoder", f"eyes_of_test:{medical}", "--general-encoder", "eyes_of_test:general"]


def test_from_a_list_to_a_study_and_again(medtasks, folder):
    rows = rows_of(folder)
    Image.open(folder / "5.png").resize((90, 90)).save(folder / "copy.png")  # nearly the same, and not of one group
    (folder / "cut.png").write_bytes((folder / "1.png").read_bytes()[:999])
    rows += [{"id": "copy", "image": "copy.png", "caption": "c", "groups": "x"}]
    rows += [{"id": "cut", "image": "cut.png", "caption": "c"}, {"id": "none", "image": "1.png"}]
    write(folder, rows)
    command = ["curate", "pairs", "list.jsonl", "--out", "study", *eyes(), "--batch-size", 5, "--access", "public"]
    made = medtasks(*command, "--sim-gen", 0.99, "--device", "cpu")
    assert made.code == 0, made.err
    study = read_study(folder / "study")
    pairs, images = read_pairs(folder / "study"), read_images(folder / "study")
    counts = study.made_with["counts"]
    assert (study.name, study.kind, study.access) == ("study", "pairs", "public")
    # Eight images of each colour, the copy is a ninth; less the pair of a group and the copy with what it copies.
    assert len(pairs) == counts["pairs chosen"] == 28 + 28 + 36 - 2
    assert counts["pairs of one group"] == counts["pairs of near-duplicates"] == 1
    assert counts["image cannot be read"] == counts["without a caption"] == 1
    assert "groups" in made.out
    assert f"about {90 + len(images)} requests to an LLM, one per pair and image; --per-image 1 makes fewer" in made.out
    assert {tuple(pair.images) for pair in pairs}.isdisjoint({("i00", "i03"), ("copy", "i05")})
    assert all(pair.sim_med >= 0.9 and pair.sim_gen <= 0.99 for pair in pairs)
    gaps = [pair.sim_med - pair.sim_gen for pair in pairs]
    assert gaps == sorted(gaps, reverse=True)
    assert len({pair.pair_id for pair in pairs}) == len(pairs)
    assert images["i02"].text == "caption 2"
    assert study.made_with["medical_encoder"]["dimension"] == 3
    before = {path.name: path.read_bytes() for path in (folder / "study").iterdir()}
    few = medtasks("curate", "pairs", "list.jsonl", "--out", "one", *eyes(), "--per-image", 1)
    assert few.code == 0, few.err
    used = Counter(image for pair in read_pairs(folder / "one") for image in pair.images)
    assert set(used.values()) == {1}
    again = medtasks(*command, "--sim-gen", 0.99, "--device", "cpu")
    assert "exists already" in again.out
    assert {path.name: path.read_bytes() for path in (folder / "study").iterdir()} == before


def test_a_list_of_the_user_is_not_taken_for_the_studys(medtasks, fails, folder):
    rows = rows_of(folder)
    mine = (folder / "list.jsonl").rename(folder / "images.jsonl").read_text()
    fails(["curate", "pairs", "images.jsonl", "--out", ".", "--name", "mine", *eyes()], "needs a folder of its own")
    (folder / "study").mkdir()
    mine = mine.replace('"image": "', '"image": "../')
    (folder / "study" / "images.jsonl").write_text(mine)
    fails(["curate", "pairs", "study/images.jsonl", "--out", "study", *eyes()], "needs a folder of its own")
    assert (folder / "study" / "images.jsonl").read_text() == mine
    write(folder, [{**row, "\x1b[2J": 1} for row in rows])
    command = ["curate", "pairs", "list.jsonl", "--out", "killed", *eyes()]
    (folder / "killed").mkdir()
    for name in ("images.jsonl", "pairs.jsonl.1.2.part"):
        (folder / "killed" / name).write_text("{")
    (folder / "killed" / "notes.txt").touch()
    fails(command, "needs a folder of its own")
    (folder / "killed" / "notes.txt").unlink()
    assert "Keys of list.jsonl that are not used: ?[2J" in medtasks(*command).out  # no orders to a terminal


def test_a_study_made_with_something_else_is_refused_and_stays(medtasks, fails, folder):
    command = ["curate", "pairs", "list.jsonl", "--out", "study", *eyes()]
    assert medtasks(*command).code == 0
    before = (folder / "study/study.json").read_bytes()
    kept = "a study is not changed once it is made; give --out a new folder"
    for change, says in (
        (["--encoder", "eyes_of_test:other"], "with another --encoder (eyes_of_test:"),
        (["--sim-med", "0.91"], "with another --sim-med (0.9, now 0.91)"),
        (["--per-image", "1"], "with another --per-image ("),
        (["--access", "gated"], "with another --access ("),
        (["--name", "other"], "with another --name ("),
    ):
        fails([*command, *change], says, kept)
    rows = rows_of(folder)
    for changed in (rows[:-1], [{**rows[0], "group": "b"}, *rows[1:]]):
        write(folder, changed)
        fails(command, "with another list of images (", kept)
    assert (folder / "study/study.json").read_bytes() == before


def test_no_pair_is_one_sentence_with_its_reasons(medtasks, folder):
    none = medtasks("curate", "pairs", "list.jsonl", "--out", "study", *eyes(), "--sim-gen", -0.9)
    assert none.code == 1
    assert "none of 276 pairs of 24 images" in none.err
    assert "0.00 in the middle" in none.err
    assert not (folder / "study").exists()


def test_after_a_kill_it_goes_on_and_encodes_nothing_twice(folder):
    command = ["medtasks", "curate", "pairs", "list.jsonl", "--out", "study", *eyes(), "--batch-size", "5"]
    (folder / "fatal").touch()
    killed = run_fresh(command, folder)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len((folder / "seen.txt").read_text().splitlines()) == 10
    (folder / "fatal").unlink()
    done = run_fresh(command, folder)
    assert done.returncode == 0, done.stderr
    seen = Counter((folder / "seen.txt").read_text().splitlines())
    assert len(seen) == 2 * COUNT
    assert set(seen.values()) == {1}
    assert len(read_pairs(folder / "study")) == 3 * 28 - 1
