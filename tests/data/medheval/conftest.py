"""MedHEval in miniature, as a clone that a test may spoil, and preparing it."""

import pytest

from medtasks.data.preparation import Options
from medtasks.data.preparers import prepare
from medtasks.data.store import load_documents

from ... import medheval_sources


@pytest.fixture
def clone(tmp_path):
    return medheval_sources.write_source(tmp_path)


@pytest.fixture
def rewrite(clone):
    """Write the file of a set anew, from its invented records after a change."""

    def run(name, change):
        records = [dict(record) for record in medheval_sources.RECORDS[name]]
        change(records)
        return medheval_sources.write_records(clone, name, records)

    return run


@pytest.fixture
def prepared(home, clone):
    """Prepare one set; return manifest and documents."""

    def run(name, **options):
        manifest = prepare(name, Options(clone, allow_changed=True, **options))
        return manifest, load_documents(name)

    return run
