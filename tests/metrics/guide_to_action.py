"""The example of Papineni et al., "BLEU", ACL 2002, that the documentation of NLTK and fast-bleu works through."""

REFERENCES = (
    "It is a guide to action that ensures that the military will forever heed Party commands",
    "It is the guiding principle which guarantees the military forces always being under the command of the Party",
    "It is the practical guide for the army always to heed the directions of the party",
)
GOOD = "It is a guide to action which ensures that the military always obeys the commands of the party"
BAD = "It is to insure the troops forever hearing the activity guidebook that party direct"
OTHER = "he read the book because he was interested in world history"
