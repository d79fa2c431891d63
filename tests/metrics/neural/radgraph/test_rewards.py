import pytest
from hypothesis import given
from hypothesis import strategies as st

from medtasks.metrics.neural.radgraph import rewards

from ....tables import each_row

DP, DA, U, ANAT = "OBS-DP", "OBS-DA", "OBS-U", "ANAT-DP"


def annotated(*entities):
    """Build an annotation of one-word entities: ``(word, label, {relation: word it leads to})``."""
    words = [word for word, *_ in entities]
    return annotation(
        (
            word,
            label,
            [
                [relation, words.index(other) + 1]
                for relation, other in (links[0] if links else {}).items()
            ],
        )
        for word, label, *links in entities
    )


def annotation(entities):
    rows = enumerate(entities, start=1)
    return {
        "entities": {
            str(number): {
                "tokens": word,
                "label": label,
                "relations": [[kind, str(other)] for kind, other in links],
            }
            for number, (word, label, links) in rows
        }
    }


# Reference, hypothesis, (simple, partial, complete) of the release, and (entity, relation, combined) of
# CXR-Report-Metric.
CASES = {
    "relation and certainty lost": (
        annotated(
            ("opacity", DP, {"located_at": "lobe", "suggestive_of": "pneumonia"}),
            *(("lobe", ANAT), ("lower", ANAT, {"modify": "lobe"}), ("pneumonia", U)),
        ),
        annotated(
            ("opacity", DP, {"located_at": "lobe"}),
            *(("lobe", ANAT), ("lower", ANAT, {"modify": "lobe"}), ("pneumonia", DP)),
        ),
        (0.75, 0.75, 2 / 3),
        (0.75, 0.8, 0.775),
    ),
    "case": (
        annotated(
            ("Cardiomegaly", DP),
            ("edema", DP, {"located_at": "Pulmonary"}),
            ("Pulmonary", ANAT),
        ),
        annotated(
            ("cardiomegaly", DP),
            ("Edema", DP, {"located_at": "pulmonary"}),
            ("pulmonary", ANAT),
        ),
        (0, 0, 1 / 3),
        (0, 0, 0),
    ),
}
LEVELS = ("simple", "partial", "complete")
CXR = ("entity_f1", "relation_f1", "combined")


@each_row("case", CASES)
def test_hand_made_cases(case):
    reference, hypothesis, release, cxr_report_metric = CASES[case]
    scores = rewards(reference, hypothesis)
    assert [scores[level] for level in LEVELS] == pytest.approx(release, abs=1e-12)
    assert [scores[name] for name in CXR] == pytest.approx(cxr_report_metric, abs=1e-12)


@st.composite
def annotations(draw):
    words = draw(
        st.lists(st.sampled_from(["effusion", "Effusion", "left", "lung", "edema"]), max_size=5)
    )
    relation = st.tuples(
        st.sampled_from(["modify", "located_at"]), st.integers(1, max(1, len(words)))
    )
    return annotation(
        (word, draw(st.sampled_from([DP, DA, ANAT])), draw(st.lists(relation, max_size=2)))
        for word in words
    )


@given(first=annotations(), second=annotations())
def test_rewards_are_those_of_the_package(first, second):
    package = pytest.importorskip(
        "radgraph.rewards", reason="needs the radgraph package: pip install medtasks[dev]"
    )
    scores = rewards(first, second)
    assert [scores[level] for level in LEVELS] == pytest.approx(
        package.compute_reward(second, first, "all"), abs=1e-12
    )
