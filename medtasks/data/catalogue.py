"""Which datasets exist."""

from collections.abc import Mapping
from types import MappingProxyType

from medtasks.data.dataset_info import Access, DatasetInfo
from medtasks.data.gmai.catalogue import GMAI
from medtasks.data.medheval.catalogue import MEDHEVAL
from medtasks.data.multimedeval.catalogue import MULTIMEDEVAL
from medtasks.errors import unknown_name

MEDICONFUSION = DatasetInfo(
    name="mediconfusion",
    benchmark="MediConfusion",
    description="176 confusing pairs of radiology images, one two-option question per pair",
    source="https://github.com/AIF4S/MediConfusion",
    revision="a3045b03a0a2b5e9f051842e3fd088ed0861f2b6",
    access=Access.PUBLIC,
    licence="questions and labels MIT; images under the licence of each PubMed Central article",
    size=26.0,
    rows=352,
    images=228,
    sha256=MappingProxyType(
        {
            "dataset.json": "36e5052ebe370aac7446f29cb1425fa47b1795b40e2e7a72462c93b5472c0d5f",
            "dataset.csv": "d99702d0140ecfccd00603251e65846ccc8dafe6ffc0f34d4e90c284d591a2e9",
            "image_dict.json": "dc7a872449cb9d48ac3f53764fee6261b59d001b8bd403d9cfeddf3e29d6cea9",
            "few_shot_prompts/PMC1064097_F2.jpg": "1a2f59f2fd2b1d83d6957491790de08a8d9c293b80da4a1c61e4b07478733d71",
            "few_shot_prompts/PMC1065025_F1.jpg": "b556fb3bce0672b28da4bdcd9b8685e0d1b09f0a0b83830d3f53176a46a2712b",
            "few_shot_prompts/PMC1087855_F3.jpg": "492459ea526aba9004f6c70801275064e7eba6b97c6de7f1e9e30b79f38a7d3a",
        }
    ),
)

IU_XRAY = DatasetInfo(
    name="iu_xray_report",
    benchmark="IU X-Ray",
    description="findings of chest X-ray reports, one row per study with all its images",
    source="https://openi.nlm.nih.gov/faq",
    revision="2013-08-01",
    access=Access.PUBLIC,
    licence="CC BY-NC-ND 4.0, as copies of it state; not confirmed at its source",
    size=None,
    rows=None,
    images=None,
)

CATALOGUE: Mapping[str, DatasetInfo] = MappingProxyType(
    {info.name: info for info in (MEDICONFUSION, *MULTIMEDEVAL, *MEDHEVAL, *GMAI, IU_XRAY)}
)


def dataset_info(name: str) -> DatasetInfo:
    """Return the catalogue entry of ``name``.

    Raises:
        UnknownName: There is no such dataset; the message suggests the nearest name.
    """
    if name not in CATALOGUE:
        raise unknown_name("dataset", name, CATALOGUE, "medtasks data list")
    return CATALOGUE[name]
