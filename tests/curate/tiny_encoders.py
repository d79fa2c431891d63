"""Tiny image encoders with random weights, saved as the published ones are, and images to embed."""

import json
from pathlib import Path

import numpy as np
import open_clip  # type: ignore[import-untyped]
import torch
import transformers as hf
from open_clip.timm_model import TimmModel  # type: ignore[import-untyped]
from PIL import Image
from safetensors.torch import save_file

SIDE = 32
_TOWER = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
_VIT = {"image_size": SIDE, "layers": 2, "width": 32, "head_width": 16, "patch_size": 8}
_TEXT = {"context_length": 8, "vocab_size": 64, "width": 16, "heads": 2, "layers": 1}


def drawn(seed: int, size: tuple[int, int] = (40, 40)) -> Image.Image:
    """Draw a smooth image."""
    values = np.random.default_rng(seed).integers(0, 256, (5, 5, 3), np.uint8)
    return Image.fromarray(values).resize(size, Image.Resampling.BICUBIC)


def clip(folder: Path, seed: int = 0) -> Path:
    """Save a CLIP of transformers; features have 12 numbers."""
    torch.manual_seed(seed)
    text = hf.CLIPTextConfig(**_TOWER, vocab_size=64)
    vision = hf.CLIPVisionConfig(**_TOWER, image_size=SIDE, patch_size=8)
    config = hf.CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=12)
    hf.CLIPModel(config).save_pretrained(folder)
    size = {"height": SIDE, "width": SIDE}
    hf.CLIPImageProcessor(size={"shortest_edge": SIDE}, crop_size=size).save_pretrained(folder)
    return folder


def dinov2(folder: Path, seed: int = 0) -> Path:
    """Save a DINOv2 of transformers; features have 16 numbers."""
    torch.manual_seed(seed)
    hf.Dinov2Model(hf.Dinov2Config(**_TOWER, image_size=SIDE, patch_size=8)).save_pretrained(folder)
    size = {"height": SIDE, "width": SIDE}
    hf.BitImageProcessor(size={"shortest_edge": SIDE}, crop_size=size).save_pretrained(folder)
    return folder


def open_clip_vit(folder: Path) -> Path:
    """Save an open_clip checkpoint with a tower of its own."""
    torch.manual_seed(0)
    config = {"embed_dim": 12, "vision_cfg": _VIT, "text_cfg": _TEXT}
    model = open_clip.model.CLIP(12, dict(_VIT), dict(_TEXT))
    _write(folder, config, {"mean": [0.5] * 3, "std": [0.25] * 3})
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    return folder


def like_biomedclip(folder: Path) -> Path:
    """Save an open_clip checkpoint in BiomedCLIP's layout; its text tower is named and nowhere to be had."""
    torch.manual_seed(0)
    timm = {"timm_model_name": "test_vit", "timm_model_pretrained": False, "timm_pool": "", "timm_proj": "linear"}
    text = {"hf_model_name": "nobody/nothing", "hf_proj_type": "mlp", "context_length": 256}
    _write(folder, {"embed_dim": 12, "vision_cfg": {**timm, "image_size": 160}, "text_cfg": text}, {})
    tower = TimmModel("test_vit", 12, image_size=160, pool="", proj="linear", pretrained=False)
    weights = {f"visual.{name}": tensor for name, tensor in tower.state_dict().items()}
    torch.save({**weights, "logit_scale": torch.ones(())}, folder / "open_clip_pytorch_model.bin")
    return folder


def _write(folder: Path, config: dict[str, object], preprocess: dict[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"model_cfg": config, "preprocess_cfg": preprocess})
    (folder / "open_clip_config.json").write_text(text)
