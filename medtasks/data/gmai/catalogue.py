"""GMAI-MMBench's parts.

Row counts of the single-choice parts follow from the paper's table 7 (25,831) and a published accuracy of the
validation part (2109 of 4550); checksums are those of VLMEvalKit at e8e78f05. The questions with several answers are
not in the published files; whoever has them prepares them from a file of the same columns.
"""

from types import MappingProxyType

from medtasks.data.dataset_info import Access, DatasetInfo

_SOURCE = "https://huggingface.co/datasets/OpenGVLab/GMAI-MMBench"
_LICENCE = "Apache 2.0; its 284 sources have licences of their own"

VALIDATION = DatasetInfo(
    name="gmai_mmbench_val",
    benchmark="GMAI-MMBench",
    description="questions with options on images of 38 modalities, validation part",
    source="https://huggingface.co/datasets/VLMEval/GMAI-MMBench",
    revision="main",
    access=Access.GATED,
    licence=_LICENCE,
    size=9340.0,
    rows=4550,
    images=None,
    md5=MappingProxyType({"GMAI-MMBench_VAL.tsv": "254bd581627866f1c499d3d6b4422324"}),
)
TEST = DatasetInfo(
    name="gmai_mmbench_test",
    benchmark="GMAI-MMBench",
    description="the test part, whose answers only its authors have",
    source=_SOURCE,
    revision="main",
    access=Access.GATED,
    licence=_LICENCE,
    size=None,
    rows=21281,
    images=None,
    md5=MappingProxyType(
        {
            f"GMAI_mm_bench_TEST_part_{part}.tsv": digest
            for part, digest in enumerate(
                (
                    "900d735231230a63f4ed45665c078ef4",
                    "1b27ab621386945d7e4a765ad2d22b0e",
                    "44bdc2b6267dd505d529b8cad06f0fb2",
                    "5a04a04fcac9f1466709f242fdb80acb",
                    "c70baf8909eda9af0ddeab275c721336",
                    "825abc39596b644dead9350d0cfa3b96",
                    "defb8aed2fb77365a76b6b9abd6a2701",
                    "ff490d60b85f2bb0abb67a435b298c65",
                    "ff67c86f40da93b09139ac1d1ba5dc6b",
                    "3dae94627b9ac0fe00180d4780fbf6dc",
                    "d08dc813f0eb6bbab63cae2a9d113c4b",
                ),
                1,
            )
        }
    ),
)
MULTI_ANSWER_SET = DatasetInfo(
    name="gmai_mmbench_mcls",
    benchmark="GMAI-MMBench",
    description="questions with several right options, from a file of your own",
    source=_SOURCE,
    revision="unpublished",
    access=Access.GATED,
    licence=_LICENCE,
    size=None,
    rows=None,
    images=None,
)
GMAI = (VALIDATION, TEST, MULTI_ANSWER_SET)
