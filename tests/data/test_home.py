"""Files that appear complete or not at all."""

import os

import pytest

from medtasks.home import written_whole


def test_a_file_is_replaced_when_the_block_ends_and_not_when_it_fails(tmp_path):
    target = tmp_path / "folder" / "file"
    with written_whole(target) as partial:
        partial.write_text("first")
        assert not target.exists()
    with pytest.raises(IsADirectoryError), written_whole(target) as partial:
        partial.parent.write_text("no folder takes text")
    assert (target.read_text(), [*target.parent.iterdir()]) == ("first", [target])


def test_a_device_stays_what_it_is(tmp_path):
    """As root, a page for /dev/null would take its place for the whole machine."""
    device = tmp_path / "nothing"
    device.symlink_to(os.devnull)
    with written_whole(device) as partial:
        partial.write_text("gone")
    assert device.is_symlink()
    assert device.read_text() == ""
