"""What a checkpoint says about decoding: nothing for the medical models, penalties for ``hf_vlm``."""

import pytest
import torch
from medtasks.model_adapters.base.batching import pad_left
from medtasks.model_adapters.base.generation import GenerationSettings, decoding_config
from medtasks.model_adapters.hf_vlm import HfVlm
from transformers import GenerationConfig

from . import tiny_hf_models

PENALTY = {"repetition_penalty": 20.0, "no_repeat_ngram_size": 1, "min_new_tokens": 3, "bad_words_ids": [[40]]}


def stored():
    """Everything a checkpoint could sneak in, ends of sequence and sampling among it."""
    return GenerationConfig(**PENALTY, eos_token_id=[50], do_sample=True, temperature=3.0, top_k=2, num_beams=3)


@pytest.mark.filterwarnings("ignore:Passing")  # transformers: penalties do not count the prompt's ids
def test_medical_models_take_nothing_over(new_bench):
    plain, changed = new_bench(), new_bench()
    expected = plain.adapter.generate_until(plain.generation())
    changed.adapter.language_model.generation_config = stored()
    # Without the adapter the stored values do count.
    adapter = changed.adapter
    prompts = [adapter.encode(doc["question"], []) for doc in changed.docs[:3]]
    inputs = adapter.model_inputs(pad_left(prompts, adapter.pad_id, adapter.device))
    config = decoding_config(GenerationSettings(12), adapter.stop_ids, adapter.pad_id)
    with torch.inference_mode():
        steered = adapter.language_model.generate(**inputs, generation_config=config)
    replies = adapter.generate_batch(prompts, GenerationSettings(12), 0)
    assert replies == plain.adapter.generate_batch(prompts, GenerationSettings(12), 0)
    assert [adapter.decode(row).strip() for row in steered.tolist()] != replies
    assert changed.adapter.generate_until(changed.generation()) == expected
    assert changed.adapter.generate_until(changed.generation(do_sample=True, temperature=1)) == (
        plain.adapter.generate_until(plain.generation(do_sample=True, temperature=1))
    )


def test_hf_vlm_keeps_the_penalties_of_a_checkpoint_and_no_way_of_sampling(tmp_path):
    folder = tiny_hf_models.build("llava", tmp_path / "llava")
    built = HfVlm(pretrained=str(folder), device="cpu", dtype="float32", journal=False)
    prompts = [built.encode(f"Is the {side} lung clear?", []) for side in ("left", "right", "other")]

    def replies():
        return built.generate_batch(prompts, GenerationSettings(12), 0)

    plain = replies()
    built.network.generation_config.update(do_sample=True, temperature=3.0, top_k=2, num_beams=3)
    assert replies() == plain
    built.network.generation_config.update(**PENALTY)
    penalised = replies()
    assert penalised != plain
    assert penalised == replies()
