"""The contractions that MultiMedEval's cleaner restores, as words that lost an apostrophe.

Source: the table ``contractions`` in ``multimedeval/utils.py`` of https://github.com/corentin-ryr/MultiMedEval at
d9ac283. Every entry but one puts a single missing apostrophe back, so the full forms say it all; the other takes one
away. Left out are four entries with a capital, which are looked up in lower-case text and never found, and two that
change nothing.
"""

from collections.abc import Mapping
from types import MappingProxyType

_FULL_FORMS = """
ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't haven't he'd've he'd he's
how'd how'll how's isn't it'd it'd've it'll ma'am might've mightn't mightn't've must've mustn't needn't not've o'clock
oughtn't 'ow's'at shan't she'd've should've shouldn't shouldn't've somebody'd've somebody'll somebody's someone'd
someone'd've someone'll someone's something'd something'd've something'll that's there'd there'd've there're there's
they'd they'd've they'll they're they've 'twas wasn't we'd've we've weren't what'll what're what's what've when's
where'd where's where've who'd who'd've who'll who's who've why'll why're why's won't would've wouldn't wouldn't've
y'all y'all'd've y'all'll you'd you'd've you'll you're you've
"""


def _restored() -> dict[str, str]:
    """Return each full form by its spellings with one apostrophe missing."""
    return {
        word[:position] + word[position + 1 :]: word
        for word in _FULL_FORMS.split()
        for position, character in enumerate(word)
        if character == "'"
    }


CONTRACTIONS: Mapping[str, str] = MappingProxyType({**_restored(), "somebody'd": "somebodyd"})
