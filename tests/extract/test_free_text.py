"""What of a free reply is judged, labelled and compared, under the released behaviour and under ours."""

from hypothesis import given
from hypothesis import strategies as st

from medtasks.extract.careful.open_text import NO_REPORT
from medtasks.extract.extractor_registry import Reason

from ..tables import each_row, rows_in
from .reading import reading

medheval_open_reference, medheval_open_strict = map(reading, ("medheval_open_reference", "medheval_open_strict"))


@each_row(
    ("reply", "compared", "labelled"),
    [
        ("Atelectasis", "elec", NO_REPORT),
        ("stable", "ble", NO_REPORT),
        ("Assistant: no effusion is seen", " no effusion is see", " no effusion is see"),
        ("No effusion.", "No effusion.", "No effusion."),
        ("Assistant", "", NO_REPORT),
        ("satisfaction insists::", "faction ", NO_REPORT),
        ("assistant assistant:", " ", NO_REPORT),
        ("Assistant:" * 3, "", "Assistant:" * 3),
        ("ten chars.", "en chars.", NO_REPORT),
        ("Ten chars.", "Ten chars.", "Ten chars."),
        (None, "", NO_REPORT),
    ],
)
def test_reference(reply, compared, labelled):
    facts = medheval_open_reference(reply).facts
    assert (facts["compared"], facts["labelled"]) == (compared, labelled)
    assert facts["judged"] == (reply or "").strip()


@given(st.text())
def test_reference_is_python_s_strip(reply):
    if reply.startswith("[["):
        return
    read = medheval_open_reference(reply)
    assert read.facts["compared"] == reply.strip("".join({*"Assistant:"}))
    assert len(read.facts["labelled"]) >= 10
    assert read.facts["judged"] == reply.strip()
    assert (read.value or "") == reply.strip()


@each_row(("reply", "own"), rows_in("free_text_strict"))
def test_strict(reply, own):
    read = medheval_open_strict(reply)
    assert read.facts == {"judged": own, "labelled": own, "compared": own}
    assert read.value == (own or None)
    assert read.reason is (Reason.OK if own else Reason.EMPTY)


def test_a_reply_cut_off_while_reasoning():
    assert medheval_open_strict("<think>It may be").reason is Reason.TRUNCATED
    assert medheval_open_strict("<think>It may be").facts["judged"] == ""
    assert medheval_open_reference("<think>It may be").facts["judged"] == "<think>It may be"
