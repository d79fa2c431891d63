"""Studies of hallucination questions, as MedHEval drafts them."""
