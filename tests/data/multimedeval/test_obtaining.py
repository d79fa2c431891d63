"""What a source that a person has to bring says of itself, and sets whose size is not the published one."""

from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options

from ...tables import each_row

AGREEMENT, PERSON = "needs credentials", "has to be downloaded by a person at "
PHYSIONET = "https://physionet.org/content"


@each_row(
    "name, parts",
    [
        ("ct_rate_report", [f"{PERSON}https://huggingface.co/datasets/ibrahimhamamci/CT-RATE"]),
        ("mednli", [AGREEMENT, f"{PHYSIONET}/mednli/1.0.0/", "PhysioNet's mednli zip archive"]),
        ("mimic_cxr_report", [AGREEMENT, f"{PHYSIONET}/mimic-cxr/2.0.0/", "mimic-cxr-reports.zip"]),
        ("mimic_iii_summary", [AGREEMENT, f"{PHYSIONET}/mimiciii/1.4/", "idsTest.csv"]),
        ("vindr_mammo", [AGREEMENT, f"{PHYSIONET}/vindr-mammo/1.0.0/", "finding_annotations.csv"]),
    ],
)
def test_how_to_get_it(home, refuses, name, parts):
    with refuses(*parts):
        prepare(f"multimedeval_{name}", Options())
