"""``medtasks_tiny`` that counts."""

from medtasks.model_adapters.tiny import MedTasksTiny


class Counting(MedTasksTiny):
    """Counts the samples it really runs."""

    def load(self):
        super().load()
        self.ran = 0

    def generate_batch(self, prompts, settings, seed):
        self.ran += len(prompts)
        return super().generate_batch(prompts, settings, seed)

    def score_batch(self, items):
        self.ran += len(items)
        return super().score_batch(items)
