"""CIDEr: words as Stanford's tokenizer, both published forms, and a file of frequencies that runs nothing."""

import collections
import json
import math
import pickle
from pathlib import Path

import numpy as np
import pytest

from medtasks.data.dataset_manifest import git_blob
from medtasks.data.prepare import downloads
from medtasks.errors import SourceError, WeightsMissing
from medtasks.metrics.cider import COCO, caption_words, cider_values, read_frequencies
from medtasks.metrics.model_settings import WEIGHTS, ModelSettings, fetch, weights_folder
from medtasks.metrics.ptb_tokens import line_tokens
from medtasks.metrics.report_metrics import report_metric

from ..tables import each_row

# recorded name: with the stand-in's frequencies, clipped
RECORDED = {
    "cider_corpus": (False, False),
    "ciderD_corpus": (False, True),
    "pycocoevalcap": (False, True),
    "cider_standin": (True, False),
    "ciderD_standin": (True, True),
}


def frequencies_file(path, counts, documents=60):
    table = collections.defaultdict(float, counts)
    path.write_bytes(pickle.dumps({"ref_len": np.log(float(documents)), "df": table}))
    return path


def cases(folder, name):
    path = folder / "reports" / "cider" / name
    if not path.is_file():
        pytest.skip(f"no recorded {name} in {path.parent}")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def test_golden_cider_words(golden):
    rows = cases(golden, "tokens.jsonl")
    words = caption_words([row["text"] for row in rows])
    wrong = [(row, own) for row, own in zip(rows, words, strict=True) if row["tokens"].split() != own]
    assert rows
    assert not wrong


def test_golden_cider_scores(golden):
    frequencies = read_frequencies(golden / "reports" / "cider" / "standin.p")
    as_json = json.loads((golden / "reports" / "cider" / "standin.json").read_text(encoding="utf-8"))
    assert frequencies.counts == {tuple(ngram.split(" ")): count for ngram, count in as_json["df"]}
    assert frequencies.log_documents == as_json["ref_len"]
    for case in cases(golden, "corpora.jsonl"):
        owners = [number for number, texts in enumerate(case["references"]) for _ in texts]
        words = caption_words(case["predictions"], as_published=True)
        expected = caption_words([text for texts in case["references"] for text in texts], as_published=True)
        assert words == [tokens.split() for tokens in case["prediction_tokens"]], case["name"]
        assert expected == [tokens.split() for texts in case["reference_tokens"] for tokens in texts], case["name"]
        for name, (from_file, clipped) in RECORDED.items():
            values = cider_values(words, expected, owners, frequencies if from_file else None, clipped=clipped)
            scores = case[name].get("scores", [])  # without pairs the published code stops, or its mean is NaN
            assert values == pytest.approx(scores, rel=1e-9, abs=1e-12), (case["name"], name)
            if scores:
                assert np.mean(values) == pytest.approx(case[name]["mean"], rel=1e-9, abs=1e-12), (case["name"], name)


def test_golden_cider_metrics_keep_captions_in_place_where_the_published_code_shifts_them(golden):
    settings = ModelSettings(named_weights={COCO: golden / "reports" / "cider" / "standin.p"})
    for case in cases(golden, "corpora.jsonl"):
        if not case["predictions"] or any(len(texts) > 1 for texts in case["references"]):
            continue
        texts = {"references": [texts[0] for texts in case["references"]], "hypotheses": case["predictions"]}
        for name, recorded in (("cider_coco", "cider_standin"), ("cider_d", "pycocoevalcap")):
            scores = report_metric(name, settings)(**texts)
            published = scores.samples[f"{name}_reference"]
            if name == "cider_d" or all(text == text.lower() for side in texts.values() for text in side):
                assert published == pytest.approx(case[recorded]["scores"], rel=1e-9, abs=1e-12), case["name"]
            shifted = any(set(text) & set("\r\x0b\x0c\u2028\u2029") for side in texts.values() for text in side)
            assert shifted or scores.samples[name] == published, case["name"]


# Words that the published tokenizer gave for texts of ours (a no-break space is written as ~).
@each_row(
    "text, words",
    [
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
    ],
)
def test_words(text, words):
    expected = [word.replace("~~", "\0").replace("~", "\u00a0").replace("\0", "~") for word in words.split(" ")]
    assert list(line_tokens(text, "")) == expected


def test_long_and_odd_texts_take_linear_time():
    for piece in ("a.", "1,", "-", "<a ", "(312) ", ". ", "a-", "x@", "don't ", "\u2028", "www.", "'", "🙂"):
        assert len(caption_words([piece * 2000])) == 1


def test_an_initial_before_the_next_line_loses_its_full_stop_as_published():
    assert caption_words(["Vitamin B.", "The end"], as_published=True) == [["vitamin", "b"], ["the", "end"]]
    assert caption_words(["Vitamin B.", "The end"]) == [["vitamin", "b."], ["the", "end"]]
    assert caption_words(["Effusion: no.", "5 mm"], as_published=True) == [["effusion", "no."], ["5", "mm"]]


def test_frequencies_and_corpus_are_stated(tmp_path):
    texts = {"references": ["no effusion", "clear lungs"], "hypotheses": ["No effusion", ""]}
    path = frequencies_file(tmp_path / "own.p", {("no",): 30.0})
    scores = report_metric("cider_coco", ModelSettings(named_weights={COCO: path}))(**texts)
    stated = scores.settings["document frequencies"]
    assert git_blob(path) in stated
    assert f"not the published one, {WEIGHTS[COCO].git_blob}" in stated
    assert scores.samples["cider_coco"] == pytest.approx([5.0, 0.0])  # no trigrams
    corpus = report_metric("cider_d")
    assert "2 references" in corpus(**texts).settings["document frequencies"]
    alone = corpus(references=texts["references"][:1], hypotheses=texts["hypotheses"][:1])
    assert (alone.totals["cider_d"], corpus(**texts).samples["cider_d"][0]) == (0.0, pytest.approx(5.0))
    assert math.isnan(corpus(references=[], hypotheses=[]).totals["cider_d"])


class Attack:
    def __reduce__(self):
        return Path.touch, (Path("attacked"),)


@each_row(
    "content, sentence",
    [
        (pickle.dumps({"ref_len": 1.0, "df": Attack()}), r"it names pathlib\.\w+"),
        (b"cos\nsystem\n(S'touch attacked'\ntR.", "it names os.system"),
        (b"cbuiltins\neval\n(S'1'\ntR.", "it names builtins.eval"),
        (pickle.dumps({"ref_len": math.inf, "df": {("a",): 1.0}}), "no logarithm"),
        (pickle.dumps({"ref_len": 1.0, "df": {}}), "'df' is empty"),
        (pickle.dumps({"ref_len": 1.0, "df": {("a",): 3.0}}), "larger than the number of documents"),
        (pickle.dumps({"ref_len": 1.0, "df": {("a",): math.nan}}), "infinite"),
        (pickle.dumps({"ref_len": 1.0, "df": {"a": 1.0}}), "not tuples of words"),
        (pickle.dumps({"ref_len": 1.0})[:-2], "cannot be read"),
        (pickle.dumps([1]), "cannot be read"),
        (b"", "cannot be read"),
    ],
)
def test_a_file_of_frequencies_runs_nothing(content, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.p").write_bytes(content)
    with pytest.raises(WeightsMissing, match=sentence) as raised:
        read_frequencies(tmp_path / "x.p")
    assert "medtasks weights fetch coco-val" in str(raised.value)
    assert not (tmp_path / "attacked").exists()


def test_the_file_is_fetched_from_its_own_address_and_checked(monkeypatch):
    requests = []

    def download(published, target):
        requests.append(published)
        if len(requests) == 1:
            raise SourceError("its checksum differs")
        return frequencies_file(target, {("a",): 1.0})

    monkeypatch.setattr(downloads, "download", download)
    with pytest.raises(WeightsMissing, match=r"its checksum differs.*put it into"):
        fetch(COCO)
    weights_folder(COCO).mkdir(parents=True)
    assert fetch(COCO) == weights_folder(COCO) / "coco-val.p"
    published = downloads.Published(WEIGHTS[COCO].url, git_blob=WEIGHTS[COCO].git_blob)
    assert requests == [published] * 2
    assert not published.matches(fetch(COCO))
