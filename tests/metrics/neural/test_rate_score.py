"""RaTEScore: the published reading with its faults, and the one in which every pair keeps its own reference."""

import json
import math
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from medtasks.errors import WeightsMissing
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural import rate_score as module
from medtasks.metrics.neural.rate_score import Affinity, Entity, affinities, rate_score
from medtasks.metrics.neural.rate_score import rate_score_reference as as_published
from medtasks.metrics.neural.rate_sentences import entity_spans, split_sentences

from ...growth import assert_linear
from ...tables import each_row

SMALL_RULES = r"""# made up
\b(\a	0	stbegin
\a.\s+(\C	0	stbegin
Dr.\s+(\C	1	stbegin
\a(.)\s+\C	2	stend
Dr(.)\s+\C	3	stend
"""
RELEASES = {"": "0.6.0_long", "_short": "0.6.0_short", "_0_5_0": "0.5.0"}


@pytest.fixture(scope="module")
def folder(golden):
    return golden / "reports" / "ratescore"


@pytest.fixture(scope="module")
def rules(tmp_path_factory):
    """The published file of rules, or a small one, with which some texts have other sentences."""
    if path := os.environ.get("MEDTASKS_TEST_RUSH_RULES"):
        return Path(path)
    path = tmp_path_factory.mktemp("rules") / "rules.tsv"
    path.write_text(SMALL_RULES)
    return path


@pytest.fixture(scope="module")
def recorded(folder, rules, tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")  # a network is loaded for new texts only
    weights = {"rate-ner": folder / "ner", "biolord": folder / "encoder", "rush-rules": rules}
    return ModelSettings(named_weights=weights, device="cpu", cache=cache, progress=False)


def rows(folder, name):
    return [
        json.loads(line)
        for line in (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    ]


def test_golden_rate_sentences(folder):
    if not (path := os.environ.get("MEDTASKS_TEST_RUSH_RULES")):
        pytest.skip(
            "medspacy's rush_rules.tsv is not at hand; MEDTASKS_TEST_RUSH_RULES can name it"
        )
    for row in rows(folder, "sentences"):
        assert split_sentences(row["text"], Path(path)) == row["sentences"]


def test_sentences_by_a_small_file_of_rules(tmp_path):
    path = tmp_path / "rules.tsv"
    path.write_text(SMALL_RULES)
    text = "The heart is large. Seen by Dr. Smith. OK\n\nNo effusion"
    assert split_sentences(text, path) == [
        "The heart is large.",
        "Seen by Dr. Smith.",
        "OK\n\nNo effusion",
    ]


@each_row("piece", ["A. ", "Dr. A. ", "A.\n\n", "a", " ", "A!"])
def test_time_for_sentences_grows_no_faster_than_the_report(rules, piece):
    assert_linear(partial(split_sentences, rules=rules), piece)


def test_golden_rate_spans(folder):
    for row in rows(folder, "spans"):
        spans = entity_spans(row["tokens"], row["labels"])
        texts = [
            "".join(row["tokens"][start : end + 1]).replace("▁", " ").strip()
            for start, end, _ in spans
        ]
        kinds = [kind for *_, kind in spans]
        assert list(zip(texts, kinds, strict=True)) == [
            (text.strip(), kind) for text, kind in row["entities"]
        ]


def test_golden_rate_weightings(folder):
    for row in rows(folder, "weighting"):
        sides = ("reference", "candidate")
        entities = [
            [Entity(f"{side}{at}", kind) for at, kind in enumerate(row[f"{side}_types"])]
            for side in sides
        ]
        vectors = {
            f"{side}{at}": np.float32(vector) / np.linalg.norm(vector).astype(np.float32)
            for side in sides
            for at, vector in enumerate(row[f"{side}_vectors"])
        }
        scores = module.entity_scores(*entities, vectors, as_published=True)
        for ending, name in {"": "long", "_short": "short", "_0_5_0": "release_0.5.0"}.items():
            assert scores[ending] == pytest.approx(row[name]["score"], rel=1e-5, abs=1e-5)


def tied_mean(choices, end):
    """The least or largest weighted mean (``min`` or ``max``) over choices of (weighted value, weight) per entity."""
    mean = 0.0
    for _ in range(
        len(choices) + 5
    ):  # Dinkelbach's iteration, which each time takes the best choices for its mean
        ends = [
            end(options, key=lambda option: option[0] - mean * option[1]) for options in choices
        ]
        weight = sum(weight for _, weight in ends)
        mean = sum(value for value, _ in ends) / weight if weight else 0.0
    return mean


def score_range(reference, candidate, vectors, affinity):
    """The least and the largest score that rounding allows: equally similar partners may be of several types."""
    ends = []
    for end in (min, max):
        means = []
        for side, other in ((reference, candidate), (candidate, reference)):
            choices = []
            for entity in side:
                cosines = [
                    float(vectors[entity.text] @ vectors[partner.text]) for partner in other
                ]
                tied = [
                    at for at, cosine in enumerate(cosines) if cosine >= max(cosines) - 1e-5
                ]
                options = []
                for at in tied:
                    mean = module.weighted_mean(
                        [cosines[at]], [entity.kind], [other[at].kind], affinity
                    )
                    weight = affinity.weights[entity.kind, other[at].kind]
                    options.append((mean * weight, weight))
                choices.append(options)
            means.append(tied_mean(choices, end))
        ends.append(2 * means[0] * means[1] / sum(means) if min(means) > 0 else end(-1.0, 1.0))
    return ends


def test_the_range_of_tied_partners():
    affinity = affinities()[""]
    vectors = {"nodule": np.float32([1, 0]), "heart": np.float32([0, 1])}
    found, excluded, heart = (
        Entity("nodule", "ABNORMALITY"),
        Entity("nodule", "NON-ABNORMALITY"),
        Entity("heart", "ANATOMY"),
    )
    assert score_range([found], [found], vectors, affinity) == pytest.approx([1, 1])
    least, largest = score_range([found, heart], [excluded, found, heart], vectors, affinity)
    assert least < largest
    for order in ([excluded, found, heart], [found, excluded, heart]):
        score = module.entity_scores([found, heart], order, vectors, as_published=True)[""]
        assert least - 1e-5 <= score <= largest + 1e-5


def test_golden_rate_entities_and_cosines(folder, recorded, rules):
    pairs = rows(folder, "pairs")
    reports = iter(
        module.report_entities(
            recorded, [row[side] for row in pairs for side in ("reference", "candidate")]
        )
    )
    compared = 0
    for row in pairs:
        found = {side: next(reports) for side in ("reference", "candidate")}
        for side, entities in found.items():
            if row.get(f"{side}_sentences", ()) != split_sentences(row[side], rules):
                found[side] = None  # with few rules
            elif f"{side}_ner" in row:
                listed = [
                    tuple(entity) for part in row[f"{side}_ner"] for entity in part["entities"]
                ]
                assert [tuple(entity) for entity in entities or ()] == listed
        if "error" in row or not all(found.values()):
            continue
        vectors = module.entity_vectors(
            recorded, [entity.text for side in found.values() for entity in side]
        )
        published, means = (
            {name: value[0] for name, value in row["scores"].items()},
            {ending: [] for ending in RELEASES},
        )
        for side, other in (("reference", "candidate"), ("candidate", "reference")):
            cosines = (
                np.stack([vectors[entity.text] for entity in found[side]])
                @ np.stack([vectors[entity.text] for entity in found[other]]).T
            )
            best = row[f"best_for_{side}"]
            # Ties are decided by rounding errors, so the recorded partner is only required to be among the best.
            for similarities, (place, cosine) in zip(cosines, best, strict=True):
                assert similarities.max() == pytest.approx(cosine, abs=1e-5)
                assert similarities[place] == pytest.approx(cosine, abs=1e-5)
            kinds, partners = (
                [entity.kind for entity in found[side]],
                [found[other][place].kind for place, _ in best],
            )
            for ending, affinity in affinities().items():
                means[ending].append(
                    module.weighted_mean(
                        [cosine for _, cosine in best], kinds, partners, affinity
                    )
                )
        scores = module.entity_scores(
            found["reference"], found["candidate"], vectors, as_published=True
        )
        for ending, release in RELEASES.items():
            first, second = means[ending]
            assert 2 * first * second / (first + second) == pytest.approx(
                published[release], abs=1e-5
            )
            low, high = score_range(
                found["reference"], found["candidate"], vectors, affinities()[ending]
            )
            assert all(
                low - 1e-5 <= score <= high + 1e-5
                for score in (scores[ending], published[release])
            )
        compared += 1
    assert compared


def test_golden_rate_lists_keep_the_published_faults(folder, recorded):
    if "MEDTASKS_TEST_RUSH_RULES" not in os.environ:
        pytest.skip(
            "medspacy's rush_rules.tsv is not at hand; MEDTASKS_TEST_RUSH_RULES can name it"
        )
    for row in rows(folder, "lists"):
        texts = [*row["references"], *row["candidates"]]
        if len(row["references"]) != len(row["candidates"]) or not all(
            isinstance(text, str) for text in texts
        ):
            continue
        values = as_published(recorded, row["references"], row["candidates"]).samples[
            "rate_score_reference"
        ]
        assert len(values) == len(row["references"])
        returned = [value for value in values if not math.isnan(value)]
        assert len(returned) == len(row.get("scores", ()))
        # Texts without sentences disappear, and the others move up; see above for ties.
        reports = module.report_entities(recorded, texts)
        sides = reports[: len(row["references"])], reports[len(row["references"]) :]
        pairs = zip(
            *([entities for entities in side if entities is not None] for side in sides),
            strict=False,
        )
        for value, score, pair in zip(returned, row.get("scores", ()), pairs, strict=True):
            assert (value == 0.5) == (score == 0.5)
            if all(pair):
                vectors = module.entity_vectors(
                    recorded, [entity.text for side in pair for entity in side]
                )
                low, high = score_range(*pair, vectors, affinities()[""])
                assert all(low - 1e-5 <= each <= high + 1e-5 for each in (value, score))


ENTITIES = {
    "nodule": [Entity("nodule", "ABNORMALITY")],
    "no nodule": [Entity("nodule", "NON-ABNORMALITY")],
    "plain": [],
    "": None,
}


@pytest.fixture
def scored(monkeypatch):
    monkeypatch.setattr(
        module, "report_entities", lambda settings, texts: [ENTITIES[text] for text in texts]
    )
    monkeypatch.setattr(
        module, "entity_vectors", lambda settings, texts: {"nodule": np.float32([1, 0])}
    )
    settings = ModelSettings(device="cpu", cache=None)
    return lambda function, references, hypotheses: function(settings, references, hypotheses)


def test_every_pair_keeps_its_reference_and_a_pair_without_score_is_counted(scored):
    references, hypotheses = (
        ["nodule", "nodule", "no nodule", "nodule"],
        ["nodule", "", "no nodule", "plain"],
    )
    scores = scored(rate_score, references, hypotheses)
    assert scores.samples["rate_score"] == pytest.approx(
        [1, math.nan, 1, math.nan], nan_ok=True
    )
    assert (scores.totals["rate_score"], scores.totals["rate_score_scored"]) == (1, 0.5)
    assert (
        scores.settings["pairs_with_an_empty_report"]
        == scores.settings["pairs_without_entities"]
        == "1"
    )
    published = scored(as_published, references, hypotheses)
    moved = affinities()[""].penalty
    assert published.samples["rate_score_reference"] == pytest.approx(
        [1, moved, 0.5, math.nan], nan_ok=True
    )
    assert published.totals["rate_score_reference"] == pytest.approx((1 + moved + 0.5) / 3)


@each_row(
    "ending, penalty",
    [("", 0.8716553966489615), ("_short", 0.3611577852354489), ("_0_5_0", 0.3612)],
)
def test_penalty_of_each_weighting(ending, penalty, scored):
    assert scored(rate_score, ["nodule"], ["no nodule"]).totals[
        f"rate_score{ending}"
    ] == pytest.approx(penalty)


def test_no_texts_and_only_empty_texts_have_no_score(scored):
    for function, texts in (
        (rate_score, []),
        (rate_score, [""]),
        (as_published, []),
        (as_published, [""]),
    ):
        scores = scored(function, texts, texts)
        assert all(
            math.isnan(value)
            for key, value in scores.totals.items()
            if not key.endswith("scored")
        )


def test_equally_similar_partners_of_the_same_type_come_first(scored, monkeypatch):
    both = [*ENTITIES["no nodule"], *ENTITIES["nodule"]]
    monkeypatch.setitem(ENTITIES, "both", both)
    assert scored(rate_score, ["both"], ["both"]).totals["rate_score"] == pytest.approx(1)


def test_golden_rate_weights_that_are_missing(recorded, tmp_path):
    for name in ("rate-ner", "biolord"):
        broken = replace(
            recorded, cache=None, named_weights={**recorded.named_weights, name: tmp_path}
        )
        with pytest.raises(WeightsMissing, match=f"weights fetch {name}"):
            rate_score(broken, ["There is a nodule."], ["There is a nodule."])


def test_weights_that_sum_to_nothing():
    assert (
        module.weighted_mean(
            [1.0], ["ANATOMY"], ["ANATOMY"], Affinity({("ANATOMY", "ANATOMY"): 0.0}, 1.0)
        )
        == 0
    )
