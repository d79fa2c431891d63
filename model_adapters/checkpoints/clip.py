"""CLIP: preprocessing with PIL alone, to the last bit as the published stacks did it, and names of its tensors.

transformers 5 preprocesses on torchvision by default, which resizes differently (up to 0.015 after normalisation).
"""

from typing import Literal

import numpy as np
import torch
from PIL import Image

MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)
_FILL = (122, 116, 104)  # int(255 * MEAN)
_GREY_FILL = (114, 114, 114)  # what LLaVA-Med pads images with that are grey when they come in
SHAPE = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "image_size", "patch_size")
"""What a tower's configuration has to say."""
TOWER_KEYS = (
    r"text_model\..+|logit_scale|(?:text|visual)_projection\.weight|(?:vision_model\.)?embeddings\.position_ids",
    r"(?:vision_model\.)?((?:embeddings|encoder|pre_layrnorm|post_layernorm)\..+)",
)
"""For ``by_patterns``: keys of a whole CLIP model, or of its vision tower as transformers 5 stores it alone; the group
is the name in ``CLIPVisionModel``."""


def clip_pixels(image: Image.Image, size: int, *, pad: bool, crop_rounding: Literal["floor", "round"]) -> torch.Tensor:
    """Resize the shorter side to ``size`` (bicubic), crop the centre, normalise with CLIP's mean and deviation.

    With ``pad`` the image is first centred on a square canvas of CLIP's mean colour (LLaVA's ``image_aspect_ratio:
    pad``), so that nothing is cropped. An odd margin is the smaller one on the left or at the top; the published code
    draws lots. Half a margin is rounded, where the crop begins, to the ``floor`` as in transformers' CLIP processor, or
    by ``round`` (half to even) as in torchvision and so in open_clip.

    Returns:
        Shape (3, size, size), float32, mean 0 and deviation 1 over natural images.
    """
    rgb = image.convert("RGB")
    if pad:
        rgb = _squared(rgb, _GREY_FILL if image.mode == "L" else _FILL)
    width, height = rgb.size
    short = min(width, height)
    rgb = rgb.resize((int(size * width / short), int(size * height / short)), Image.Resampling.BICUBIC)
    left, top = (_half(side - size, crop_rounding) for side in rgb.size)
    rgb = rgb.crop((left, top, left + size, top + size))
    values = torch.from_numpy(np.array(rgb)).permute(2, 0, 1).float() / 255
    return ((values - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]).contiguous()


def _squared(image: Image.Image, fill: tuple[int, int, int]) -> Image.Image:
    width, height = image.size
    side = max(width, height)
    canvas = Image.new("RGB", (side, side), fill)
    canvas.paste(image, ((side - width) // 2, (side - height) // 2))
    return canvas


def _half(margin: int, rounding: Literal["floor", "round"]) -> int:
    return margin // 2 if rounding == "floor" else round(margin / 2)
