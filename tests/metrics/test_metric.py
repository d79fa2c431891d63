"""Metrics by declaration: means, errors, weights and panels against formulas written here."""

import math
import random

import pytest

from medtasks.metrics.metric import (
    CorpusMetric,
    Estimate,
    Metric,
    Panel,
    PanelResult,
    Role,
    counting,
)

from ..stats import error_matrices


def scores_of(*rows):
    """Scores of (cluster, value)."""
    return [
        {"sample": n, "cluster_id": cluster, "value": value}
        for n, (cluster, value) in enumerate(rows)
    ]


def drawn(seed, number=60, clusters=12):
    draw = random.Random(seed)
    return [
        {
            "sample": n,
            "cluster_id": f"c{draw.randrange(clusters)}",
            "image": draw.randrange(9),
            "value": draw.random(),
        }
        for n in range(number)
    ]


def value_of(score):
    return score["value"]


VALUE = Metric("value", of=value_of)
ONE_CLUSTER = {"error": math.nan, "degrees": math.nan, "effective": math.nan}


def test_the_error_of_a_mean_is_over_clusters():
    scores = drawn(1)
    values = [score["value"] for score in scores]
    first = [score["cluster_id"] for score in scores]

    found = VALUE.estimate(scores)
    assert found.value == pytest.approx(sum(values) / 60)
    assert (found.error, found.degrees) == pytest.approx(
        error_matrices.clustered(values, first)
    )
    assert found.clusters == len(set(first))


def test_the_error_of_a_mean_is_over_dyads():
    scores = drawn(1)
    values = [score["value"] for score in scores]
    first = [score["cluster_id"] for score in scores]
    second = [score["image"] for score in scores]
    keys = (lambda score: score["cluster_id"], lambda score: score["image"])
    found = Metric("value", of=value_of, clusters=keys).estimate(scores)
    expected = error_matrices.dyadic(values, list(zip(first, second, strict=True)))
    assert (found.error, found.degrees) == pytest.approx(expected)
    assert found.clusters == len(scores)


def test_a_sample_without_a_cluster_is_its_own():
    scores = scores_of((None, 0.0), (None, 1.0), (None, 1.0), (None, 0.0))
    apart = [{**one, "cluster_id": n} for n, one in enumerate(scores)]
    assert VALUE.estimate(scores) == VALUE.estimate(apart)
    assert VALUE.estimate(scores).clusters == 4


def test_a_mean_of_fewer_than_two_clusters_has_no_error():
    assert repr(VALUE.estimate([])) == repr(Estimate(math.nan, clusters=0, **ONE_CLUSTER))
    assert repr(VALUE.estimate(scores_of(("a", 1.0), ("a", 0.0)))) == repr(
        Estimate(0.5, clusters=1, **ONE_CLUSTER)
    )


def test_samples_without_a_value_do_not_count():
    scores = scores_of(("a", 1.0), ("b", None), ("c", 0.0), ("d", None))
    valued = [one for one in scores if one["value"] is not None]
    assert VALUE.estimate(scores) == VALUE.estimate(valued)
    assert VALUE.values(scores) == [(valued[0], 1.0), (valued[1], 0.0)]


def test_a_metric_may_select_its_samples():
    chosen = Metric(
        "value",
        selection=lambda scores: [one for one in scores if one["sample"] < 2],
        of=value_of,
    )
    assert chosen.estimate(scores_of(("a", 1.0), ("b", 0.5), ("c", 0.0))).value == 0.75


def test_weights_are_those_of_a_ratio():
    scores, weights = drawn(3), [1.0, 0.0, 3.0] * 20
    weighted = Metric(
        "value", of=value_of, weights=lambda units: [weights[one["sample"]] for one in units]
    )
    found = weighted.estimate(scores)
    values, clusters = [one["value"] for one in scores], [one["cluster_id"] for one in scores]
    total = sum(weights)
    mean = sum(value * weight for value, weight in zip(values, weights, strict=True)) / total
    assert found.value == pytest.approx(mean)
    counted = [row for row in zip(values, clusters, weights, strict=True) if row[-1]]
    assert (found.error, found.degrees) == pytest.approx(
        error_matrices.clustered(*zip(*counted, strict=True))
    )
    twice = Metric("value", of=value_of, weights=lambda units: [2.0] * len(units)).estimate(
        scores
    )
    assert twice.value == pytest.approx(VALUE.estimate(scores).value)
    assert twice.error == pytest.approx(
        VALUE.estimate(scores).error, rel=0.02
    )  # sizes matter little
    assert math.isnan(
        Metric("value", of=value_of, weights=lambda units: [0.0] * len(units))
        .estimate(scores)
        .value
    )


def test_a_metric_without_error_is_not_compared():
    plain = Metric("value", has_error=False, role=Role.ASIDE, of=value_of)
    assert repr(plain.estimate(scores_of(("a", 1.0), ("b", 0.0)))) == repr(Estimate(0.5))
    assert [metric.is_compared for metric in (VALUE, plain)] == [True, False]
    assert not Metric("value", role=Role.ASIDE, of=value_of).is_compared


def test_a_count_has_neither_error_nor_values():
    number = counting("number", len, selection=lambda scores: scores[1:])
    assert repr(number.estimate(drawn(4))) == repr(Estimate(59))
    assert (number.has_error, number.is_compared, number.values(drawn(4))) == (False, False, [])


# ---- panels ----


@pytest.fixture
def panel():
    """A panel that notes the rows it computed."""
    computed = []

    def compute(rows):
        computed.append(rows)
        return PanelResult(
            {"most": Estimate(max(value for _, value in rows), 0.25)} if rows else {}
        )

    made = Panel(lambda one: (one["cluster_id"], one["value"]), compute)
    return made, computed


def test_metrics_of_a_panel(panel):
    made, computed = panel
    most = CorpusMetric(
        "most", panel=made, of=lambda one: one["value"] if one["sample"] else None
    )
    bare, absent = (
        CorpusMetric("most", has_error=False, panel=made),
        CorpusMetric("absent", panel=made),
    )
    scores = scores_of(("a", 0.5), ("a", 0.75), (None, 0.25))
    assert most.estimate(scores) == Estimate(0.75, 0.25, 2, 1.5)
    assert repr(bare.estimate(scores)) == repr(Estimate(0.75))
    assert repr(absent.estimate(scores)) == repr(Estimate(math.nan, math.nan, 2, 1.5, 2.0))
    assert most.values(scores) == [(scores[1], 0.75), (scores[2], 0.25)]
    assert bare.values(scores) == []
    assert math.isnan(most.estimate([]).value)
    assert len(computed) == 2  # of these scores, and of none


def test_a_panel_computes_once_for_each_content(panel):
    made, computed = panel
    scores = scores_of(("a", 0.5), ("a", 0.5), ("b", 0.75))
    for found in (scores, scores[::-1], [dict(one, sample="elsewhere") for one in scores]):
        made.of(found)
    assert computed == [[("a", 0.5), ("a", 0.5), ("b", 0.75)]]
    made.of(scores[1:])  # one of two equal rows
    made.of([*scores[1:], {**scores[0], "cluster_id": "c"}])
    made.of(scores)
    assert len(computed) == 3
    other = Panel(made.row, lambda rows: made.compute(rows))
    other.of(scores)
    assert len(computed) == 4
