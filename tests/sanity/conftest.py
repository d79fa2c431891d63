"""All datasets in miniature in one data folder."""

from pathlib import Path

import pytest
from PIL import Image

from medtasks.cli.data import write_sample_home
from medtasks.data.catalogue import CATALOGUE
from medtasks.data.gmai.preparing import prepare as prepare_gmai
from medtasks.data.mediconfusion import DEMONSTRATIONS
from medtasks.data.path_of import prepared_folder
from medtasks.data.preparation import Options
from medtasks.data.preparers import prepare
from medtasks.task_files import task_config

from .. import iu_xray_sources, medheval_sources, tiny_gmai, tiny_multimedeval

DEMOS = "demonstrations"


@pytest.fixture(scope="session")
def every_dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with every dataset of the catalogue; tests must not change it."""
    folder = tmp_path_factory.mktemp("every_dataset")
    home, source = folder / "home", folder / "source"
    write_sample_home(home)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEDTASKS_HOME", str(home))
        for name in CATALOGUE:
            if name.startswith("multimedeval_"):
                tiny_multimedeval.prepare(name.removeprefix("multimedeval_"))
        medheval_sources.prepare_all(source / "medheval")
        _put_demonstrations(prepared_folder("mediconfusion") / DEMONSTRATIONS)
        prepare("iu_xray_report", Options(iu_xray_sources.put_r2gen(source / "iu_xray")))
        _prepare_gmai(source)
    return home


def _put_demonstrations(folder: Path) -> None:
    """Write Med-Flamingo's examples, which the drawn sample lacks."""
    folder.mkdir(exist_ok=True)
    for number, name in enumerate(task_config("mediconfusion")["lmms_eval_specific_kwargs"]["med_flamingo"][DEMOS]):
        Image.new("RGB", (6 + number, 5), (40 * number, 0, 90)).save(folder / name)


def _prepare_gmai(source: Path) -> None:
    tiny_gmai.write(source / "gmai_mmbench_val" / "GMAI-MMBench_VAL.tsv", tiny_gmai.rows(20))
    for part, name in enumerate(CATALOGUE["gmai_mmbench_test"].md5):
        rows = [{**row, "index": f"{part}{row['index']}", "answer": ""} for row in tiny_gmai.rows(2, seed=part)]
        tiny_gmai.write(source / "gmai_mmbench_test" / name, rows)
    several = [{**row, "answer": ",".join({"A", row["answer"]})} for row in tiny_gmai.rows(9, seed=50)]
    tiny_gmai.write(source / "gmai_mmbench_mcls" / "own.tsv", several)
    for name in ("gmai_mmbench_val", "gmai_mmbench_test", "gmai_mmbench_mcls"):
        prepare_gmai(CATALOGUE[name], Options(source / name, allow_changed=True))


@pytest.fixture
def prepared(every_dataset: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same as this test's data folder."""
    monkeypatch.setenv("MEDTASKS_HOME", str(every_dataset))
    return every_dataset
