"""What a question of a study is in the dataset."""

from medtasks.curate.drafts import Draft
from medtasks.curate.publishing import document
from medtasks.curate.study import Study, StudyImage, StudyKind


def test_yes_and_no_that_a_reviewer_has_turned_around():
    study = Study(name="s", kind=StudyKind.KNOWLEDGE_CLOSED, source="")
    image = StudyImage(image_id="i", file="/i.png", sha256="0" * 64, text="")
    draft = Draft(item_id="i/1", images=("i",), question="Is it?", options=("No", "Yes"), answers=("A",))
    found = document(study, draft, 0, image, None)
    assert (found["options"], found["answer"], found["gold"]) == (["Yes", "No"], "B", "No")
