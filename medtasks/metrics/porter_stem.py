"""Porter's stemmer as NLTK has it, each word stemmed once."""

from collections.abc import Callable
from functools import lru_cache

from medtasks.errors import MedTasksError


@lru_cache(maxsize=1)
def porter_stemmer() -> Callable[[str], str]:
    """Return NLTK's Porter stemmer with its extensions, which ROUGE and METEOR use, with a memory for words.

    Raises:
        MedTasksError: NLTK is not installed.
    """
    try:
        from nltk.stem.porter import PorterStemmer
    except ImportError as error:
        raise MedTasksError("Porter's stemmer needs nltk; bring it with: pip install 'medtasks[report]'") from error
    remembered: Callable[[str], str] = lru_cache(maxsize=1 << 17)(PorterStemmer().stem)
    return remembered
