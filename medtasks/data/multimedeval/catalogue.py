"""MultiMedEval's datasets.

Sizes are what the reference's code evaluates (MultiMedEval at d9ac283); where the paper or its README print another
number, the note in ``tasks_yaml/multimedeval/README.md`` says why. Images are counted where a source states them.
"""

from types import MappingProxyType

from medtasks.data.dataset_info import Access, DatasetInfo

_MEDMNIST = "https://zenodo.org/records/10519652"
_PHYSIONET = "PhysioNet Credentialed Health Data License 1.5.0"


def _info(
    name: str,
    description: str,
    source: str,
    revision: str,
    access: Access,
    licence: str,
    rows: int | None,
    *,
    size: float | None = None,
    images: int | None = None,
    sha256: dict[str, str] | None = None,
    md5: dict[str, str] | None = None,
) -> DatasetInfo:
    return DatasetInfo(
        name=f"multimedeval_{name}",
        benchmark="MultiMedEval",
        description=description,
        source=source,
        revision=revision,
        access=access,
        licence=licence,
        size=size,
        rows=rows,
        images=images,
        sha256=MappingProxyType(sha256 or {}),
        md5=MappingProxyType(md5 or {}),
    )


def _mnist(name: str, description: str, rows: int, size: float, md5: str, licence: str = "CC BY 4.0") -> DatasetInfo:
    return _info(
        name,
        f"{description}, 28 x 28 pixels",
        _MEDMNIST,
        "MedMNIST v3 (10519652)",
        Access.PUBLIC,
        licence,
        rows,
        size=size,
        md5={f"{name}.npz": md5},
    )


_TEXT = (
    _info(
        "medqa",
        "USMLE questions with five options",
        "https://huggingface.co/datasets/bigbio/med_qa",
        "main",
        Access.PUBLIC,
        "unknown (as the source states)",
        1273,
        images=0,
    ),
    _info(
        "medmcqa",
        "Indian medical entrance questions with four options (validation split)",
        "https://huggingface.co/datasets/openlifescienceai/medmcqa",
        "91c6572c454088bf71b679ad90aa8dffcd0d5868",
        Access.PUBLIC,
        "Apache 2.0",
        4183,
        images=0,
        sha256={
            "data/validation-00000-of-00001.parquet": (
                "b768a1ea34afc9f80d3106d9b21f80fa8a00ec450a1f6cd641af72ca9e591021"
            )
        },
    ),
    _info(
        "pubmedqa",
        "yes, no or maybe from an abstract (labelled, fold 1)",
        "https://huggingface.co/datasets/bigbio/pubmed_qa",
        "main",
        Access.PUBLIC,
        "MIT",
        500,
        images=0,
    ),
    _info(
        "mednli",
        "does the second clinical sentence follow from the first",
        "https://physionet.org/content/mednli/1.0.0/",
        "1.0.0",
        Access.CREDENTIALED,
        _PHYSIONET,
        1422,
        images=0,
    ),
    _info(
        "mimic_iii_summary",
        "impressions of CT and MR reports from their findings, lower case as the published numbers have it",
        "https://physionet.org/content/mimiciii/1.4/",
        "1.4",
        Access.CREDENTIALED,
        _PHYSIONET,
        13054,
        images=0,
    ),
    _info(
        "mimic_iii_summary_head",
        "impressions of CT and MR reports from their findings, as the reference's head cuts them",
        "https://physionet.org/content/mimiciii/1.4/",
        "1.4",
        Access.CREDENTIALED,
        _PHYSIONET,
        None,
        images=0,
    ),
    _info(
        "mmlu",
        "medical subjects of MMLU, the first quarter of each",
        "https://huggingface.co/datasets/cais/mmlu",
        "c30699e8356da336a370243923dbaf21066bb9fe",
        Access.PUBLIC,
        "MIT",
        271,
        images=0,
        sha256={"all/test-00000-of-00001.parquet": "74a41822ce7d3def56e1682f958469c04642a5336a5ce912fa375fdb90fb25d7"},
    ),
)
_VQA = (
    _info(
        "vqa_rad",
        "questions on radiology images",
        "https://huggingface.co/datasets/flaviagiammarino/vqa-rad",
        "bcf91e7654fb9d51c8ab6a5b82cacf3fafd2fae9",
        Access.PUBLIC,
        "CC0 1.0",
        451,
        size=34.5,
        sha256={
            "data/test-00000-of-00001-e5bc3d208bb4deeb.parquet": (
                "eb520bdab1116dd4f420120da19049d2315389fa126d031f65ec42e153264ea7"
            )
        },
    ),
    _info(
        "path_vqa",
        "questions on pathology images",
        "https://huggingface.co/datasets/flaviagiammarino/path-vqa",
        "1685832883334b5bb5beaf4e4b333fdeecaa4ad9",
        Access.PUBLIC,
        "MIT",
        6719,
        sha256={
            "data/test-00000-of-00003-e9adadb4799f44d3.parquet": (
                "533175be08e87b9ccf2fc06e2f82e58bb2e9bf2299a4a138cf5311f1d26ac157"
            ),
            "data/test-00001-of-00003-7ea98873fc919813.parquet": (
                "84bde926245c4b136de6ef48b197a0f3f177b3fbcb03b7f3cbfcfcb212f20c50"
            ),
            "data/test-00002-of-00003-1628308435019820.parquet": (
                "ae676f41a7ddfc85be8503a731c719e1608da37ddc981de42a10dd2d55a8ee87"
            ),
        },
    ),
    _info(
        "slake",
        "questions on radiology images (English part)",
        "https://huggingface.co/datasets/BoKelvin/SLAKE",
        "a9083ce6c34ac3ffb17671a605962924d8a8f9e9",
        Access.PUBLIC,
        "CC BY 4.0",
        1061,
        size=216.0,
        sha256={
            "test.json": "6be8f7b4c5a46cdbc713a5210a25b6ed5aa1fd1574c83cefb4f998131f17c2c3",
            "imgs.zip": "44eb7d9214e1ac5b7946e237b669401866df9114fd9a3618c5a84fbffcded0b0",
        },
    ),
    _info(
        "diff_vqa",
        "questions on chest X-rays, images of the current study",
        "https://physionet.org/content/medical-diff-vqa/1.0.0/",
        "1.0.0",
        Access.CREDENTIALED,
        _PHYSIONET,
        None,
    ),
)
_MNIST = (
    _mnist("octmnist", "retinal OCT, 4 classes", 1000, 54.9, "c68d92d5b585d8d81f7112f81e2d0842"),
    _mnist("pathmnist", "colon pathology, 9 classes", 7180, 205.6, "a8b06965200029087d5bd730944a56c1"),
    _mnist("bloodmnist", "blood cells, 8 classes", 3421, 35.5, "7053d0359d879ad8a5505303e11de1dc"),
    _mnist("breastmnist", "breast ultrasound, 2 classes", 156, 0.6, "750601b1f35ba3300ea97c75c52ff8f6"),
    _mnist("dermamnist", "skin lesions, 7 classes", 2005, 19.7, "0744692d530f8e62ec473284d019b0c7", "CC BY-NC 4.0"),
    _mnist("organcmnist", "abdominal CT, coronal, 11 classes", 8216, 15.5, "b9ceb9546e10131b32923c5bbeaea2b1"),
    _mnist("organsmnist", "abdominal CT, sagittal, 11 classes", 8827, 16.5, "9ab87b696fb54e2a387ebe992d6ed5f1"),
    _mnist("pneumoniamnist", "paediatric chest X-rays, 2 classes", 624, 4.2, "28209eda62fecd6e6a2d98b1501bb15f"),
    _mnist("retinamnist", "fundus images, 5 grades", 400, 3.3, "bd4c0672f1bba3e3a89f0e4e876791e4"),
    _mnist(
        "tissuemnist",
        "kidney cortex cells, 8 classes, the first quarter",
        11820,
        124.9,
        "ebe78ee8b05294063de985d821c1c34b",
    ),
)
_PAD_UFES_IMAGES = {
    "imgs_part_1.zip": "0ab44f60938bf57445e12f518a8878954cc734e6b0aec6d01194e2d26b4b2dca",
    "imgs_part_2.zip": "e2d9a3cbd58e823f5ae33163c48643e7d1b54ae3f9e145f01f8e9f16a363a60b",
    "imgs_part_3.zip": "ecc4ef10143a43e1d01cb736773148607a78b530417eb76f2c38ad24bf5d0d2c",
}
_CLASSIFICATION = (
    _info(
        "pad_ufes_20",
        "smartphone images of skin lesions, 7 classes, all images as the reference evaluates them",
        "https://data.mendeley.com/datasets/zr7vgbcyr2/1",
        "1",
        Access.PUBLIC,
        "CC BY 4.0",
        2298,
        size=3592.7,
        images=2298,
        sha256=_PAD_UFES_IMAGES,
    ),
    _info(
        "pad_ufes_20_disjoint",
        "PAD-UFES-20, test lesions of the reference's split that are in no training row",
        "https://data.mendeley.com/datasets/zr7vgbcyr2/1",
        "1",
        Access.PUBLIC,
        "CC BY 4.0",
        None,
        size=3592.7,
        sha256=_PAD_UFES_IMAGES,
    ),
    _info(
        "vindr_mammo",
        "BI-RADS grade of mammography findings, one row per finding",
        "https://physionet.org/content/vindr-mammo/1.0.0/",
        "1.0.0",
        Access.CREDENTIALED,
        "PhysioNet Restricted Health Data License 1.5.0",
        429,
    ),
    _info(
        "cbis_ddsm_mass",
        "pathology of cropped mammography masses, 3 classes",
        "https://www.kaggle.com/datasets/awsaf49/cbis-ddsm-breast-cancer-image-dataset",
        "1",
        Access.GATED,
        "CC BY-SA 3.0",
        378,
    ),
    _info(
        "cbis_ddsm_calcification",
        "pathology of cropped mammography calcifications, 3 classes",
        "https://www.kaggle.com/datasets/awsaf49/cbis-ddsm-breast-cancer-image-dataset",
        "1",
        Access.GATED,
        "CC BY-SA 3.0",
        326,
    ),
    _info(
        "mimic_cxr_classification",
        "five findings of chest X-rays, one row per image",
        "https://physionet.org/content/mimic-cxr-jpg/2.0.0/",
        "2.0.0",
        Access.CREDENTIALED,
        _PHYSIONET,
        5159,
    ),
    _info(
        "mimic_cxr_report",
        "findings of chest X-ray reports, one row per study with all its images",
        "https://physionet.org/content/mimic-cxr/2.0.0/",
        "2.0.0",
        Access.CREDENTIALED,
        _PHYSIONET,
        2347,
    ),
    _info(
        "ct_rate_report",
        "findings of chest CT reports, one row per volume",
        "https://huggingface.co/datasets/ibrahimhamamci/CT-RATE",
        "main",
        Access.GATED,
        "CC BY-NC-SA 4.0",
        None,
    ),
    _info(
        "chestxray14",
        "fourteen findings of chest X-rays",
        "https://www.kaggle.com/datasets/nih-chest-xrays/data",
        "3",
        Access.GATED,
        "CC0 1.0",
        25596,
    ),
)

MULTIMEDEVAL: tuple[DatasetInfo, ...] = (*_TEXT, *_VQA, *_MNIST, *_CLASSIFICATION)
