"""MedHEval's six sets.

Counts and checksums were taken from the repository at 7f7d980. Where the paper prints another number, the note in
``tasks_yaml/medheval/README.md`` says so.
"""

from types import MappingProxyType

from medtasks.data.dataset_info import Access, DatasetInfo

_VISUAL = "Visual_Misinterpretation_Hallucination/close-ended"
_FINE = f"{_VISUAL}/fine-grained"
_CREDENTIALED = "PhysioNet Credentialed Health Data License 1.5.0"


def _info(
    name: str,
    description: str,
    access: Access,
    licence: str,
    rows: int,
    images: int,
    size: float,
    sha256: dict[str, str],
) -> DatasetInfo:
    return DatasetInfo(
        name=f"medheval_{name}",
        benchmark="MedHEval",
        description=description,
        source="https://github.com/Aofei-Chang/MedHEval",
        revision="7f7d980",
        access=access,
        licence=licence,
        size=size,
        rows=rows,
        images=images,
        sha256=MappingProxyType({f"benchmark_data/{file}": digest for file, digest in sha256.items()}),
    )


# The first file of each entry is the one that is read. The others hold the same questions per source of images.
MEDHEVAL = (
    _info(
        "visual_mm",
        "closed questions on SLAKE and VQA-RAD images (Mixed-H)",
        Access.PUBLIC,
        "questions without a stated licence; images CC BY 4.0 (SLAKE) and CC0 1.0 (VQA-RAD)",
        3610,
        494,
        1.45,
        {
            f"{_VISUAL}/MM-VisHal.json": "6da8c4ebe13e7533be5a5b4f6c23f68760e07ec3be7eab54ab84d1e1fdf9be2d",
            f"{_FINE}/slake_qa_pairs.json": "4aed33132547d326f848e05b93e34ec509fe8d624cb3a38cd763d360c2680499",
            f"{_FINE}/rad_vqa_pairs.json": "3b8e5ea2be1598bbcafca311225d3d244f0ed020903cbf5709c9ff31c9e15697",
        },
    ),
    _info(
        "visual_cxr",
        "closed questions on chest X-rays of IU-Xray and MIMIC-CXR (Single-H)",
        Access.CREDENTIALED,
        f"{_CREDENTIALED}; IU-Xray as its source states",
        5587,
        790,
        2.6,
        {
            f"{_VISUAL}/CXR-VisHal.json": "622096d335547c9c5ed4c666b5dd70bf8189a772a14f108c03b20e8478ab0954",
            f"{_FINE}/xray_closed_pairs.json": "904fff4bd83ea3f27926d82b7c6f963bf52ab54fc26712e5e9cfec78bdf009eb",
            f"{_FINE}/mimic_cxr_closed_pairs.json": "68bdb156ee6117742280fa9e4db4452d243560615b9b49b3a2a601f3e07e4875",
        },
    ),
    _info(
        "visual_report",
        "chest X-ray reports with the components they mention (MIMIC-CXR)",
        Access.CREDENTIALED,
        _CREDENTIALED,
        490,
        490,
        0.66,
        {
            "Visual_Misinterpretation_Hallucination/open-ended/MIMIC-CXR_pairs.json": (
                "9b933043b68054ecce25a5ad5525c7364486dfa34115dfd4b00c734f6d5cb4ac"
            )
        },
    ),
    _info(
        "knowledge_closed",
        "yes/no questions that need medical knowledge beyond the image (MIMIC-CXR)",
        Access.CREDENTIALED,
        _CREDENTIALED,
        2000,
        400,
        0.8,
        {
            "Knowledge_Deficiency_Hallucination/close-ended/MIMIC-CXR_sampled.json": (
                "77fd16b713643ec0acac54255ef7b9229d92457f8ab0a27e8774f0bf154d9514"
            )
        },
    ),
    _info(
        "knowledge_open",
        "open questions that need medical knowledge beyond the image (MIMIC-CXR)",
        Access.CREDENTIALED,
        _CREDENTIALED,
        2318,
        400,
        1.63,
        {
            "Knowledge_Deficiency_Hallucination/open-ended/MIMIC-CXR_pairs.json": (
                "303b748ec9baf91392751700cf6f05b7c263ab21876d205d09ff579fe42e371d"
            )
        },
    ),
    _info(
        "context",
        "yes/no questions that contradict or follow the patient's notes (MIMIC-CXR, MIMIC-IV)",
        Access.CREDENTIALED,
        _CREDENTIALED,
        2000,
        400,
        1.07,
        {
            "Context_Misalignment_Hallucination/MIMIC-CXR_pairs.json": (
                "05d979d6f37c3abd988004401318332657807450958429d75398249e77a8e02c"
            )
        },
    ),
)
