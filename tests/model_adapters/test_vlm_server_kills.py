"""``vlm_server`` killed and interrupted at any request: little is asked twice, nothing is lost."""

import json
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from ..local_server import serving
from ..processes import run_fresh
from .served_model import CHAT, ServedModel

CONCURRENCY, KILLS, APART = 4, 5, 6
SCRIPT = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(1)
from medtasks.model_adapters.vlm_server import VlmServer
from toys import SPLIT, TASK, instances, make_docs, to_visual

DOCS, OPTIONS = make_docs(14), (" clear", " a large effusion", " B")
SETTINGS = {"until": [], "max_new_tokens": 12, "temperature": 0}

def answer(name):
    journal = os.path.abspath(name)
    lm = VlmServer(base_url=sys.argv[2], concurrency=int(sys.argv[3]), journal=journal)
    lm.task_dict = {TASK: {SPLIT: DOCS}}
    replies = [one.text for one in lm.generate_until(instances("generate_until", DOCS, [SETTINGS], to_visual))]
    scores = lm.loglikelihood(instances("loglikelihood", DOCS, OPTIONS, to_visual))
    json.dump([replies, scores], open(name + ".json", "w"))

def run(name):
    child = os.fork()
    if child == 0:
        code = 1
        open("pid", "w").write(str(os.getpid()))
        try:
            answer(name)
            code = 0
        except KeyboardInterrupt:
            code = 130
        except BaseException:
            import traceback
            traceback.print_exc()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

codes = [run("calm")]
open("calmed", "w").close()
while len(codes) < 20 and (len(codes) == 1 or codes[-1] != 0):
    codes.append(run("killed"))
print(json.dumps(codes))
"""


class Killing(ServedModel):
    """Sends a signal to the process whose number stands in ``pid`` when so many requests came after the first run."""

    def __init__(self, folder, draw):
        super().__init__(reply=lambda body: f"Reply {len(json.dumps(body['messages']))}", before=self._before)
        self.folder, self.draw = folder, draw
        self.calm, self.signals = None, {}

    def _before(self, handler, path, body):
        with self.lock:
            if self.calm is None and (self.folder / "calmed").exists():
                self.calm = len(self.asked) - 1
                self.signals = self._drawn()
            if self.calm is not None and (sent := self.signals.pop(len(self.asked) - self.calm, None)):
                os.kill(int((self.folder / "pid").read_text()), sent)
        return False

    def _drawn(self):
        """Places in the run, so far apart that the requests which a kill left under way come before the next one."""
        places = sorted(self.draw.sample(range(self.calm // APART), KILLS + 1))
        kinds = [signal.SIGKILL] * KILLS + [signal.SIGINT]
        self.draw.shuffle(kinds)
        return {place * APART + self.draw.randrange(1, APART): kind for place, kind in zip(places, kinds, strict=True)}


@pytest.mark.slow
def test_a_run_killed_five_times_and_interrupted_once_ends_like_an_undisturbed_one(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    seed = int.from_bytes(os.urandom(2), "big")
    with serving(Killing(tmp_path, random.Random(seed))) as server:
        arguments = [str(Path(__file__).parent), server.base_url, str(CONCURRENCY)]
        run = run_fresh([sys.executable, "script.py", *arguments], tmp_path)
        assert run.returncode == 0, run.stderr[-3000:]
        codes = json.loads(run.stdout.splitlines()[-1])
        asked = [json.dumps(one.body, sort_keys=True) if one.path == CHAT else "" for one in server.asked]
    assert sorted(codes) == [*[-signal.SIGKILL] * KILLS, 0, 0, 130], f"seed {seed}: {run.stderr[-2000:]}"
    killed = Counter(filter(None, asked[server.calm :]))  # texts to tokenize are asked for again at any time
    again = killed.total() - len(killed)
    assert again <= (KILLS + 1) * CONCURRENCY, f"seed {seed}: {again} were asked again, more than were under way"
    (replies, scores), (calm_replies, calm_scores) = (
        json.loads((tmp_path / f"{name}.json").read_text()) for name in ("killed", "calm")
    )
    assert replies == calm_replies, f"seed {seed}"
    for score, calm_score in zip(scores, calm_scores, strict=True):
        assert score == [pytest.approx(calm_score[0], abs=1e-12), calm_score[1]], f"seed {seed}"
