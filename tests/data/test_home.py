from medtasks.data.home import dataset_folder, dataset_holding, datasets_folder, home


def test_the_dataset_that_holds_a_path():
    folder = dataset_folder("drugs")
    assert [dataset_holding(path) for path in (folder, folder / "images/1.png")] == ["drugs", "drugs"]


def test_paths_in_no_dataset():
    assert [dataset_holding(path) for path in (datasets_folder(), home(), home() / "datasets2/drugs")] == [None] * 3
