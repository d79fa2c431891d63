"""CIDEr: the published tokenizer's words, both published forms, and a file of frequencies that runs nothing."""

import json
import math
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from medtasks.data.dataset_manifest import git_blob
from medtasks.data.prepare import downloads
from medtasks.errors import MedTasksError, SourceError, WeightsMissing
from medtasks.metrics import cider, model_settings
from medtasks.metrics.cider import COCO, caption_words, cider_values, read_frequencies
from medtasks.metrics.model_settings import WEIGHTS, ModelSettings, fetch, weights_folder
from medtasks.metrics.report_metrics import report_metric

from ..processes import run_here
from ..tables import each_row

# recorded name: with the stand-in's frequencies, clipped
RECORDED = {
    "cider_corpus": (False, False),
    "ciderD_corpus": (False, True),
    "pycocoevalcap": (False, True),
    "cider_standin": (True, False),
    "ciderD_standin": (True, True),
}


def frequencies_file(path, counts, documents=60, **more):
    path.write_text(json.dumps({"ref_len": math.log(documents), "df": counts, **more}))
    return path


def cases(folder, name):
    path = folder / "reports" / "cider" / name
    if not path.is_file():
        pytest.skip(f"no recorded {name} in {path.parent}")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def test_golden_cider_words(golden, tokenizer):
    rows = cases(golden, "tokens.jsonl")
    words = caption_words([row["text"] for row in rows])
    wrong = [
        (row, own) for row, own in zip(rows, words, strict=True) if row["tokens"].split() != own
    ]
    assert rows
    assert not wrong


def test_golden_cider_scores(golden, tokenizer):
    frequencies = read_frequencies(golden / "reports" / "cider" / "standin.json")
    for case in cases(golden, "corpora.jsonl"):
        owners = [number for number, texts in enumerate(case["references"]) for _ in texts]
        words = caption_words(case["predictions"], as_published=True)
        expected = caption_words(
            [text for texts in case["references"] for text in texts], as_published=True
        )
        assert words == [tokens.split() for tokens in case["prediction_tokens"]], case["name"]
        assert expected == [
            tokens.split() for texts in case["reference_tokens"] for tokens in texts
        ], case["name"]
        for name, (from_file, clipped) in RECORDED.items():
            values = cider_values(
                words, expected, owners, frequencies if from_file else None, clipped=clipped
            )
            scores = case[name].get(
                "scores", []
            )  # without pairs the published code stops, or its mean is NaN
            assert values == pytest.approx(scores, rel=1e-9, abs=1e-12), (case["name"], name)
            if scores:
                assert np.mean(values) == pytest.approx(
                    case[name]["mean"], rel=1e-9, abs=1e-12
                ), (
                    case["name"],
                    name,
                )


def test_golden_cider_metrics_keep_captions_in_place_where_the_published_code_shifts_them(
    golden, tokenizer
):
    settings = ModelSettings(
        named_weights={COCO: golden / "reports" / "cider" / "standin.json"}
    )
    for case in cases(golden, "corpora.jsonl"):
        if not case["predictions"] or any(len(texts) > 1 for texts in case["references"]):
            continue
        texts = {
            "references": [texts[0] for texts in case["references"]],
            "hypotheses": case["predictions"],
        }
        for name, recorded in (("cider_coco", "cider_standin"), ("cider_d", "pycocoevalcap")):
            scores = report_metric(name, settings)(**texts)
            published = scores.samples[f"{name}_reference"]
            if name == "cider_d" or all(
                text == text.lower() for side in texts.values() for text in side
            ):
                assert published == pytest.approx(
                    case[recorded]["scores"], rel=1e-9, abs=1e-12
                ), case["name"]
            shifted = any(
                set(text) & set("\r\x0b\x0c\u2028\u2029")
                for side in texts.values()
                for text in side
            )
            assert shifted or scores.samples[name] == published, case["name"]


# Words that the published tokenizer gave for texts of ours (a no-break space is written as ~).
WORDS = [
    (
        "Heart size cannot be judged; 2.5-cm nodule (series 2).",
        "heart size can not be judged 2.5-cm nodule -lrb- series 2 -rrb-",
    ),
    ("Patient's tube isn't seen, don't", "patient 's tube is n't seen do n't"),
    ("T12/L1 and/or C5/C6, 45-year-old, s/p CABG.", "t12/l1 and/or c5/c6 45-year-old s/p cabg"),
    (
        "Seen at 4:15 p.m. on 12/03/2020, no. 5, fig. 2, approx. 3",
        "seen at 4:15 p.m. on 12/03/2020 no. 5 fig. 2 approx 3",
    ),
    ("0.5-1.0 cm, 5 1/2 or ½, 3.5x4.2, .5-7b", "0.5-1 .0 cm 5~1/2 or 1/2 3.5 x4 .2 .5 -7 b"),
    ("A. The heart. E. coli. Dr. Smith, M.D. etc.", "a the heart e. coli dr. smith m.d. etc."),
    ("+/- 5 > 3 <br /> {x} [1] :)", "+ / 5 > 3 <br~/> -lcb- x -rcb- -lsb- 1 -rsb- :-rrb-"),
    ("H&E h&e 10^3 50% ~5 #3 $5 5° £3", "h&e h & e 10 ^ 3 50 % ~~ 5 # 3 $ 5 5 ° # 3"),
    ("“quoted” ‘it’ — x – y … -- ----- ___ **b**", "quoted it x y ----- ___ ** b **"),
    ("https://a.org/b?c=1, x@y.org", "https://a.org/b?c=1 x@y.org"),
    ("肺部清晰。 naïve β-blocker m² 🙂 \ue000 \u200bz", "肺部清晰 。 naïve β-blocker m ² z"),
    ("C.-Y. Chang, U.S. U.K. Ph.D.", "c.-y chang u.s. u.k. ph.d."),
]


def test_words(tokenizer):
    """Captions do not touch each other; a no-break space within a token parts words."""
    expected = [
        words.replace("~~", "\0").replace("~", " ").replace("\0", "~").split()
        for _, words in WORDS
    ]
    assert caption_words([text for text, _ in WORDS]) == expected
    odd = ["", " ", "\r", "x\u2028y", "_", "half \ud800 pair", "\0", "<a\nb", "\ufeff", "'"]
    assert caption_words(odd) == [caption_words([text])[0] for text in odd]
    assert caption_words([]) == []


def test_an_initial_before_the_next_line_loses_its_full_stop_as_published(tokenizer):
    assert caption_words(["Vitamin B.", "The end"], as_published=True) == [
        ["vitamin", "b"],
        ["the", "end"],
    ]
    assert caption_words(["Vitamin B.", "The end"]) == [["vitamin", "b."], ["the", "end"]]
    assert caption_words(["Effusion: no.", "5 mm"], as_published=True) == [
        ["effusion", "no."],
        ["5", "mm"],
    ]


def test_the_text_is_in_no_file_and_no_argument(tokenizer, monkeypatch):
    calls = []
    run = subprocess.run

    def recorded(arguments, **options):
        calls.append((arguments, options))
        return run(arguments, **options)

    monkeypatch.setattr(subprocess, "run", recorded)
    assert caption_words(["zyzzyva"]) == [["zyzzyva"]]
    ((arguments, options),) = calls
    assert "zyzzyva" not in str(arguments)
    assert b"zyzzyva" in options["input"]


def test_a_tokenizer_that_fails_is_a_sentence_without_text(monkeypatch):
    fails = [sys.executable, "-c", "import sys; sys.exit('cannot read ' + sys.stdin.read())"]
    monkeypatch.setattr(cider, "tokenizer_command", lambda: fails)
    with pytest.raises(
        MedTasksError, match="ended with code 1; check Java with: java -version"
    ) as refusal:
        caption_words(["secret"])
    assert "secret" not in str(refusal.value)
    monkeypatch.setattr(
        cider, "tokenizer_command", lambda: [sys.executable, "-c", "print('one')"]
    )
    with pytest.raises(MedTasksError, match="made 2 lines of 3 captions"):
        caption_words(["a", "b", "c"], as_published=True)


@each_row(
    "lacking, fix",
    [("pycocoevalcap", "pip install 'medtasks[cider]'"), ("java", "default-jre-headless")],
)
def test_without_package_or_java_the_metric_says_what_to_install(
    lacking, fix, monkeypatch, tmp_path
):
    spec = (
        None
        if lacking == "pycocoevalcap"
        else SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    )
    monkeypatch.setattr(cider.importlib.util, "find_spec", lambda name: spec)
    (tmp_path / "tokenizer").mkdir(exist_ok=True)
    (tmp_path / "tokenizer" / "stanford-corenlp-3.4.1.jar").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WeightsMissing) as refusal:
        report_metric("cider_d")(references=["a"], hypotheses=["a"])
    assert str(refusal.value).endswith(fix)


TEXTS = {"references": ["no effusion", "clear lungs"], "hypotheses": ["No effusion", ""]}


def test_the_file_of_frequencies_is_stated(tmp_path, tokenizer):
    path = frequencies_file(tmp_path / "own.json", {"no": 30.0})
    scores = report_metric("cider_coco", ModelSettings(named_weights={COCO: path}))(**TEXTS)
    stated = scores.settings["document frequencies"]
    assert git_blob(path) in stated
    assert f"not made from the published file, {WEIGHTS[COCO].git_blob}" in stated
    assert scores.samples["cider_coco"] == pytest.approx([5.0, 0.0])  # no trigrams


def test_the_corpus_of_frequencies_is_stated(tokenizer):
    corpus = report_metric("cider_d")

    assert "2 references" in corpus(**TEXTS).settings["document frequencies"]
    alone = corpus(references=TEXTS["references"][:1], hypotheses=TEXTS["hypotheses"][:1])
    assert (alone.totals["cider_d"], corpus(**TEXTS).samples["cider_d"][0]) == (
        0.0,
        pytest.approx(5.0),
    )


def test_no_texts_have_no_cider(tokenizer):
    assert math.isnan(report_metric("cider_d")(references=[], hypotheses=[]).totals["cider_d"])


class Attack:
    def __reduce__(self):
        return Path.touch, (Path("attacked"),)


# A dtype whose flags are set by BUILD, so that eight bytes become the address of an object.
DTYPE = b"cnumpy\ndtype\n(S'O8'\nI0\nI1\ntR(I3\nS'|'\nNNNI-1\nI-1\nI0\ntb."
ADDRESS = (
    b"cnumpy._core.multiarray\nscalar\n("
    + DTYPE[:-1]
    + b"S'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00'\ntR."
)
PICKLES = [
    pickle.dumps({"ref_len": 1.0, "df": Attack()}),
    b"cos\nmkdir\n(S'attacked'\ntR.",
    DTYPE,
    ADDRESS,
]


@each_row(
    "content, sentence",
    [
        *((content, "no other pickle is read, because it can run code") for content in PICKLES),
        ('{"ref_len": Infinity, "df": {"a": 1}}', "no logarithm"),
        ('{"ref_len": 1, "df": {}}', "none, negative or infinite"),
        ('{"ref_len": 1, "df": {"a": 3}}', "larger than the number of documents"),
        ('{"ref_len": 1, "df": {"a": NaN}}', "none, negative or infinite"),
        ('{"ref_len": 1, "df": {"a": "b"}}', "no table"),
        ('{"ref_len": 1, "df": [1]}', "no table"),
        (f'{{"ref_len": 1, "df": {{"a": 1{"0" * 400}}}}}', "no table"),
        ('{"ref_len": 1}', "no table"),
        ("[" * 100_000, "no table"),
        ("[1]", "no table"),
        ("", "no table"),
    ],
)
def test_a_file_of_frequencies_runs_nothing(content, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("x.p").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(WeightsMissing, match=sentence) as raised:
        read_frequencies(tmp_path / "x.p")
    assert "medtasks weights fetch coco-val" in str(raised.value)
    assert not Path("attacked").exists()


def test_commands_refuse_a_users_pickle_without_running_it(tmp_path):
    (tmp_path / "x.txt").write_text("no effusion\n")
    texts = ["--refs", "x.txt", "--hyps", "x.txt", "--metric", "cider_coco"]
    for number, content in enumerate(PICKLES):
        (tmp_path / "x.p").write_bytes(content)
        done = run_here(["medtasks", "metrics", *texts, "--weights", "coco-val=x.p"], tmp_path)
        assert (done.returncode, "because it can run code" in done.stderr) == (1, True), number
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "attacked").exists()


def test_the_published_file_is_turned_into_a_table_once_and_no_other_is_unpickled(
    monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    requests = []
    content = pickle.dumps(
        {"ref_len": np.log(60.0), "df": {("a",): 1.0, ("a", "b"): np.float64(2)}}
    )

    def download(published, target):
        requests.append(published)
        if len(requests) == 1:
            raise SourceError("its checksum differs")
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.write_bytes(content)
        return target

    monkeypatch.setattr(downloads, "download", download)
    with pytest.raises(WeightsMissing, match=r"its checksum differs.*put it into"):
        fetch(COCO)
    with pytest.raises(
        WeightsMissing, match="is not the published file"
    ):  # another one, whoever put it there
        fetch(COCO)
    (weights_folder(COCO) / "coco-val.p").write_bytes(PICKLES[0])
    with pytest.raises(WeightsMissing, match="is not the published file"):
        fetch(COCO)
    assert not Path("attacked").exists()
    (weights_folder(COCO) / "coco-val.p").write_bytes(content)
    blob = git_blob(weights_folder(COCO) / "coco-val.p")
    info = replace(WEIGHTS[COCO], git_blob=blob)
    monkeypatch.setattr(model_settings, "WEIGHTS", {**WEIGHTS, COCO: info})
    assert fetch(COCO) == weights_folder(COCO) / "coco-val.json"
    table = read_frequencies(fetch(COCO))
    assert (table.counts, table.log_documents, table.made_from) == (
        {"a": 1.0, "a b": 2.0},
        math.log(60),
        blob,
    )
    assert requests[-1] == downloads.Published(info.url, git_blob=blob)


def test_a_table_that_changes_is_read_again(tmp_path):
    path = frequencies_file(tmp_path / "own.json", {"no": 30.0})
    state = path.stat()
    assert read_frequencies(path).counts == {"no": 30.0}
    frequencies_file(path, {"no": 31.0})
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert read_frequencies(path).counts == {"no": 31.0}
