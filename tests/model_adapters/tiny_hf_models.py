"""Tiny checkpoints of public architectures with their real processors, built without network and saved to a folder.

The weights are random and the tokenizer knows bytes and a few words, but processors, configurations, folders and the
code that loads them are the published ones. Matrices are drawn larger than usual, so that image and text both matter.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from .toys import Doc

CORPUS = [
    "Is the left lung clear? Answer: yes",
    "There is a large effusion.",
    "no nodule in the right lung",
    "option A",
]
SIZE, PATCH = 16, 4  # pixels of a tower's square input and of its patches
PATCHES = (SIZE // PATCH) ** 2
SQUARE = {"size": {"shortest_edge": SIZE}, "crop_size": {"height": SIZE, "width": SIZE}}

TURN = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}IMAGE"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "{{ '<|end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)


def template(image: str, before: str = "") -> str:
    """Return a small chat template that writes ``image`` for an image, and ``before`` at the beginning."""
    return before + TURN.replace("IMAGE", "{{ '" + image + "' }}")


def tokenizer(
    *image_tokens: str, bos: bool = False, **named: str
) -> hf.PreTrainedTokenizerFast:
    """Train a byte-level tokenizer of some 300 tokens, with special tokens, some by the names of the processor's."""
    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    special = [
        "<pad>",
        "<s>",
        "</s>",
        "<|user|>",
        "<|assistant|>",
        "<|end|>",
        *image_tokens,
        *named.values(),
    ]
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    plain.train_from_iterator(CORPUS, trainer)
    if bos:
        plain.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", plain.token_to_id("<s>"))]
        )
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=plain,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=["<|user|>", "<|assistant|>", "<|end|>", *image_tokens],
        extra_special_tokens=named,
    )


def _save(folder: Path, model: hf.PreTrainedModel, processor: hf.ProcessorMixin) -> None:
    words = processor.tokenizer
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1:
                gain = 2.0 if "q_proj" in name or "k_proj" in name else 1.2
                inputs = weight.shape[-1] if "embed" in name else weight[0].numel()
                weight.normal_(std=gain / math.sqrt(inputs), generator=generator)
            else:
                weight.add_(torch.randn(weight.shape, generator=generator) * 0.05)
    model.generation_config = hf.GenerationConfig(
        eos_token_id=[words.eos_token_id, words.convert_tokens_to_ids("<|end|>")],
        pad_token_id=words.pad_token_id,
    )
    model.eval().save_pretrained(folder)
    processor.save_pretrained(folder)


def _text(kind: type, words: hf.PreTrainedTokenizerFast, **more: object) -> hf.PretrainedConfig:
    return kind(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        pad_token_id=words.pad_token_id,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
        **more,
    )


def _tower(kind: type, **more: object) -> hf.PretrainedConfig:
    sizes = {
        "hidden_size": 24,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    return kind(**sizes, image_size=SIZE, patch_size=PATCH, **more)


def _llava(
    folder: Path, family: str, text: type, image: object, before: str, **more: object
) -> None:
    words = tokenizer("<image>", bos=True)
    config = getattr(hf, f"{family}Config")(
        vision_config=_tower(hf.CLIPVisionConfig),
        text_config=_text(text, words),
        image_token_index=words.convert_tokens_to_ids("<image>"),
        **more,
    )
    processor = getattr(hf, f"{family}Processor")(
        image,
        words,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=template("<image>\n", before),
    )
    _save(folder, getattr(hf, f"{family}ForConditionalGeneration")(config), processor)


def llava(folder: Path) -> None:
    image = hf.CLIPImageProcessor(**SQUARE)
    _llava(folder, "Llava", hf.LlamaConfig, image, "", image_seq_length=PATCHES)


def llava_next(folder: Path) -> None:
    pinpoints = [[SIZE, 2 * SIZE], [2 * SIZE, SIZE], [2 * SIZE, 2 * SIZE]]
    image = hf.LlavaNextImageProcessor(**SQUARE, image_grid_pinpoints=pinpoints)
    _llava(
        folder,
        "LlavaNext",
        hf.MistralConfig,
        image,
        "{{ bos_token }}",
        image_grid_pinpoints=pinpoints,
    )


def _qwen(
    folder: Path,
    family: str,
    text: type,
    vision: dict[str, object],
    processor: str = "",
    after: str = "",
    **more: object,
) -> None:
    names = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
    words = tokenizer(*names)
    keys = ("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id")
    sizes = {"patch_size": PATCH, "merge_size": 2, "temporal_patch_size": 2}
    pixels = {"shortest_edge": 64, "longest_edge": 1024}
    tower = {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 4,
        "patch_size": PATCH,
    }
    config = getattr(hf, f"{family}Config")(
        vision_config=tower | {"spatial_merge_size": 2, "out_hidden_size": 32} | vision,
        text_config=_text(text, words, **more).to_dict(),
        **dict(zip(keys, words.convert_tokens_to_ids(list(names)), strict=True)),
    )
    built = getattr(hf, f"{processor or family}Processor")(
        hf.Qwen2VLImageProcessor(size=pixels, **sizes),
        words,
        hf.Qwen2VLVideoProcessor(size=pixels, **sizes),
        chat_template=template("<|vision_start|><|image_pad|><|vision_end|>") + after,
    )
    _save(folder, getattr(hf, f"{family}ForConditionalGeneration")(config), built)


def qwen2_vl(folder: Path) -> None:
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2]}
    vision: dict[str, object] = {
        "embed_dim": 32,
        "mlp_ratio": 2,
    }  # whose hidden_size is the language model's
    _qwen(folder, "Qwen2VL", hf.models.qwen2_vl.Qwen2VLTextConfig, vision, rope_parameters=rope)


def qwen2_5_vl(folder: Path) -> None:
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2]}
    vision = {"window_size": 16, "fullatt_block_indexes": [1]}
    _qwen(folder, "Qwen2_5_VL", hf.Qwen2_5_VLTextConfig, vision, rope_parameters=rope)


def qwen3_vl(folder: Path) -> None:
    rope = {"rope_type": "default", "mrope_section": [2, 1, 1]}
    vision = {"num_position_embeddings": 16, "deepstack_visual_indexes": [0]}
    _qwen(folder, "Qwen3VL", hf.Qwen3VLTextConfig, vision, head_dim=8, rope_parameters=rope)


def qwen3_5(folder: Path) -> None:
    """Three layers of linear attention to one of full attention, and a template that thinks unless told not to."""
    rope = {
        "rope_type": "default",
        "mrope_section": [2, 1, 1],
        "partial_rotary_factor": 1.0,
        "rope_theta": 1e4,
    }
    linear = {f"linear_{part}": 8 for part in ("key_head_dim", "value_head_dim")}
    linear |= {f"linear_num_{part}_heads": 2 for part in ("key", "value")}
    _qwen(
        folder,
        "Qwen3_5",
        hf.Qwen3_5TextConfig,
        {"num_position_embeddings": 16},
        "Qwen3VL",
        "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}",
        head_dim=8,
        layer_types=["linear_attention", "full_attention"],
        rope_parameters=rope,
        **linear,
    )


def gemma4(folder: Path) -> None:
    words = tokenizer(
        bos=True,
        image_token="<|image|>",
        boi_token="<|image>",
        eoi_token="<image|>",
        audio_token="<|audio|>",
        boa_token="<|audio>",
        eoa_token="<audio|>",
    )
    heads = {"num_key_value_heads": 4, "head_dim": 8}
    config = hf.Gemma4Config(
        vision_config=hf.Gemma4VisionConfig(
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            patch_size=PATCH,
            **heads,
        ),
        audio_config=None,
        text_config=_text(
            hf.Gemma4TextConfig,
            words,
            head_dim=8,
            global_head_dim=8,
            sliding_window=16,
            layer_types=["sliding_attention", "full_attention"],
            hidden_size_per_layer_input=0,
            use_bidirectional_attention="vision",
            tie_word_embeddings=False,
        ),
        image_token_id=words.image_token_id,
        boi_token_id=words.boi_token_id,
        eoi_token_id=words.eoi_token_id,
        tie_word_embeddings=False,
    )
    processor = hf.Gemma4Processor(
        hf.Gemma4AudioFeatureExtractor(),
        hf.Gemma4ImageProcessor(patch_size=PATCH, max_soft_tokens=70),
        words,
        hf.Gemma4VideoProcessor(patch_size=PATCH),
        chat_template=template("<|image|>", "{{ bos_token }}"),
        image_seq_length=70,
    )
    _save(folder, hf.Gemma4ForConditionalGeneration(config), processor)


def gemma3(folder: Path) -> None:
    words = tokenizer(
        bos=True,
        image_token="<image_soft_token>",
        boi_token="<start_of_image>",
        eoi_token="<end_of_image>",
    )
    per_image = 4
    config = hf.Gemma3Config(
        vision_config=_tower(hf.SiglipVisionConfig, vision_use_head=False),
        text_config=_text(
            hf.Gemma3TextConfig,
            words,
            head_dim=8,
            query_pre_attn_scalar=8,
            sliding_window=16,
            layer_types=["sliding_attention", "full_attention"],
            tie_word_embeddings=False,
        ),
        mm_tokens_per_image=per_image,
        image_token_index=words.image_token_id,
        boi_token_index=words.boi_token_id,
        eoi_token_index=words.eoi_token_id,
        tie_word_embeddings=False,
    )
    processor = hf.Gemma3Processor(
        hf.Gemma3ImageProcessor(size={"height": SIZE, "width": SIZE}),
        words,
        chat_template=template("<start_of_image>", "{{ bos_token }}"),
        image_seq_length=per_image,
    )
    _save(folder, hf.Gemma3ForConditionalGeneration(config), processor)


def idefics3(folder: Path) -> None:
    rows = [f"<row_{row}_col_{column}>" for row in range(1, 3) for column in range(1, 3)]
    words = tokenizer(
        "<image>",
        "<fake_token_around_image>",
        "<end_of_utterance>",
        "<global-img>",
        *rows,
        bos=True,
    )
    config = hf.Idefics3Config(
        vision_config=_tower(hf.Idefics3VisionConfig),
        text_config=_text(hf.LlamaConfig, words),
        image_token_id=words.convert_tokens_to_ids("<image>"),
        scale_factor=2,
    )
    processor = hf.Idefics3Processor(
        hf.Idefics3ImageProcessor(
            size={"longest_edge": 2 * SIZE}, max_image_size={"longest_edge": SIZE}
        ),
        words,
        image_seq_len=PATCHES // 4,
        chat_template=template("<image>", "{{ bos_token }}"),
    )
    _save(folder, hf.Idefics3ForConditionalGeneration(config), processor)


def internvl(folder: Path) -> None:
    words = tokenizer(
        start_image_token="<img>",
        end_image_token="</img>",
        context_image_token="<IMG_CONTEXT>",
        video_token="<video>",
    )
    config = hf.InternVLConfig(
        vision_config=_tower(hf.InternVLVisionConfig),
        text_config=_text(hf.Qwen2Config, words),
        image_token_id=words.context_image_token_id,
        image_seq_length=PATCHES // 4,
    )
    processor = hf.InternVLProcessor(
        hf.GotOcr2ImageProcessor(
            size={"height": SIZE, "width": SIZE}, crop_to_patches=True, max_patches=3
        ),
        words,
        hf.InternVLVideoProcessor(size={"height": SIZE, "width": SIZE}),
        image_seq_length=PATCHES // 4,
        chat_template=template("<IMG_CONTEXT>\n"),
    )
    _save(folder, hf.InternVLForConditionalGeneration(config), processor)


def paligemma(folder: Path) -> None:
    """Reads image and prompt in both directions, ends every prompt with a line break, has no chat template."""
    words = tokenizer("<image>")
    image = hf.SiglipImageProcessor(size={"height": SIZE, "width": SIZE})
    image.image_seq_length = PATCHES
    processor = hf.PaliGemmaProcessor(image, words)
    config = hf.PaliGemmaConfig(
        vision_config=_tower(hf.SiglipVisionConfig, vision_use_head=False),
        text_config=_text(hf.GemmaConfig, words, head_dim=8, tie_word_embeddings=False),
        image_token_index=words.convert_tokens_to_ids("<image>"),
        projection_dim=32,
        hidden_size=32,
        tie_word_embeddings=False,
    )
    _save(folder, hf.PaliGemmaForConditionalGeneration(config), processor)


def mllama(folder: Path) -> None:
    """Takes images by cross-attention, with a mask over text and tiles."""
    words = tokenizer("<|image|>", "<|python_tag|>", bos=True)
    tower = hf.models.mllama.MllamaVisionConfig(
        hidden_size=24,
        intermediate_size=32,
        num_hidden_layers=2,
        num_global_layers=1,
        attention_heads=4,
        vision_output_dim=48,
        intermediate_layers_indices=[1],
        image_size=SIZE,
        patch_size=PATCH,
    )
    text = _text(hf.models.mllama.MllamaTextConfig, words, cross_attention_layers=[1]).to_dict()
    config = hf.MllamaConfig(
        vision_config=tower.to_dict(),
        text_config=text,
        image_token_index=words.convert_tokens_to_ids("<|image|>"),
    )
    image = hf.MllamaImageProcessor(size={"height": SIZE, "width": SIZE})
    processor = hf.MllamaProcessor(
        image, words, chat_template=template("<|image|>", "{{ bos_token }}")
    )
    _save(folder, hf.MllamaForConditionalGeneration(config), processor)


BUILDERS: dict[str, Callable[[Path], None]] = {
    builder.__name__: builder
    for builder in (
        llava,
        llava_next,
        qwen2_vl,
        qwen2_5_vl,
        qwen3_vl,
        qwen3_5,
        gemma3,
        gemma4,
        idefics3,
        internvl,
        paligemma,
        mllama,
    )
}


def build(name: str, folder: Path) -> Path:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        BUILDERS[name](folder)
    return folder


def plain_inputs(processor: Any, text: str, images: Sequence[Image.Image]) -> dict[str, Any]:
    """One unpadded sample."""
    pixels = {"images": [[image.convert("RGB") for image in images]]} if images else {}
    starts = text.startswith(processor.tokenizer.bos_token)
    inputs = processor(
        text=[text], **pixels, add_special_tokens=not starts, return_tensors="pt"
    )
    return {key: value for key, value in inputs.items() if key != "labels"}


def plain_scores(
    model: Any,
    processor: Any,
    text_of: Callable[[Doc], str],
    docs: Sequence[Doc],
    options: Sequence[str],
) -> list[tuple[float, bool]]:
    """Mean losses and greedy flags after prompts: no padding, no batch, no cache and no part of the adapter."""
    scores = []
    for doc in docs:
        context = plain_inputs(processor, text_of(doc), doc["images"])["input_ids"][0].tolist()
        for option in options:
            inputs = plain_inputs(processor, text_of(doc) + option, doc["images"])
            ids = inputs["input_ids"][0].tolist()
            assert ids[: len(context)] == context
            with torch.no_grad():
                logs = model(**inputs).logits[0].double().log_softmax(-1)[len(context) - 1 : -1]
            losses = [
                -row[token].item() for row, token in zip(logs, ids[len(context) :], strict=True)
            ]
            scores.append(
                (sum(losses) / len(losses), logs.argmax(-1).tolist() == ids[len(context) :])
            )
    return scores
