"""Image encoders by name, and their embeddings on disk, so that no image is embedded twice.

=====================================  ==============================================================================
``hf-hub:ID``, or an ID or folder      the vision tower of an open_clip checkpoint, such as BiomedCLIP, with its
with ``open_clip_config.json``         projection; the text tower is not built
any other ID or folder                 an image model of transformers: ``get_image_features`` (CLIP, SigLIP), else the
                                       pooled output (of DINOv2 the class token after the last layer norm)
``hf_vlm:ID`` or ``hf_vlm:folder``     the mean of the embeddings that a vision-language model passes to its language
                                       model for an image, without additions in deeper layers (Qwen3-VL)
``module:factory``                     an object of your own: ``factory().encode(images)`` takes RGB images of Pillow
                                       and returns an array of shape (images, dimension)
=====================================  ==============================================================================

Embeddings are computed in float32 on the CPU and in bfloat16 on a GPU, batch by batch.
``MEDTASKS_HOME/embeddings/<digest of the encoder>.sqlite`` holds a vector of length 1 in float16 for each image, by the
SHA-256 of its file. The digest is one of weights and settings; that of an object of your own is its attribute
``digest``, else one of its tensors and the source of its module.
"""

import contextlib
import hashlib
import importlib
import inspect
import io
import os
import sys
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from tqdm import tqdm

from medtasks.data.images.decoding import LINEAR, decode_image, fault_of_kind
from medtasks.data.named_files import file_sha256, read_file
from medtasks.errors import MedTasksError, one_line
from medtasks.home import home
from medtasks.net.disk_cache import SqliteCache
from medtasks.net.journal import digest_of
from medtasks.version import check_unpickling

MEDICAL = "microsoft/BiomedCLIP-PubMedBERT_256-vit_base_patch16_224"
GENERAL = "facebook/dinov2-base"
"""The encoders of MediConfusion (section 2); of DINOv2 the paper names no size."""

Images = Sequence[Image.Image]
"""RGB images of Pillow."""
Vectors = npt.NDArray[np.float32]
Encode = Callable[[Images], Any]
"""From RGB images to an array of shape (images, dimension)."""

# Version of the way in which embeddings are made. With another version those on disk are not used.
_VERSION = 1
_OPEN_CLIP = "open_clip_config.json"
_VLM = "hf_vlm:"
_DECIDE = (".json", ".safetensors", ".bin", ".pt", ".pth", ".model", ".txt", ".jinja", ".py")
UNREADABLE = "image cannot be read"
UNUSABLE = "without a usable embedding"
_BYTES = 2  # size of a number in float16
_GIVE_UP = 8  # images in a row that an encoder fails on


class _LanguageModelReached(Exception):
    """Ends a forward pass at the language model."""


@dataclass(frozen=True)
class Encoder:
    """An encoder that is loaded at first use: without new images no weights are needed."""

    name: str
    digest: str  # changes with weights, settings and precision
    load: Callable[[], Encode]


def open_encoder(name: str, device: str | None = None, option: str = "--encoder") -> Encoder:
    """Return the encoder of a name.

    Args:
        name: See the table at the head of this module.
        device: ``cpu``, ``cuda`` or ``cuda:N``, by default a GPU if available.
        option: Option of the command that gave the name, for messages.

    Raises:
        MedTasksError: There is no such encoder.
    """
    import torch

    from medtasks.model_adapters.base.arguments import choose_device
    from medtasks.model_adapters.base.checkpoints import published_folder

    default = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    chosen = choose_device(device, default, 1, "medtasks curate pairs")
    plain = name.removeprefix(_VLM).removeprefix("hf-hub:")
    if ":" in plain and not Path(plain).expanduser().is_dir():
        return _own_encoder(name, chosen.type)
    folder = published_folder(plain, option)
    digests = []  # names and digests of the files that decide the embedding of an image
    for file in sorted(folder.iterdir()):
        if file.suffix in _DECIDE and file.is_file():
            digests.append((file.name, file_sha256(file)))
    digest = digest_of(_VERSION, chosen.type, name.startswith(_VLM), digests)[:32]

    def load() -> Encode:
        """Load the model, and return its encoding of images."""
        if name.startswith(_VLM):
            features = _vlm(plain, chosen)  # transformers knows which other files it needs
        elif (folder / _OPEN_CLIP).is_file():
            features = _open_clip(folder, chosen)
        else:
            features = _transformers(folder, chosen)

        def encode(images: Images) -> Vectors:
            """Encode without gradients, in bfloat16 on a GPU."""
            precision = torch.autocast(
                chosen.type, torch.bfloat16, enabled=chosen.type == "cuda"
            )
            with torch.inference_mode(), precision:
                vectors: Vectors = features(images).float().cpu().numpy()
            return vectors

        return encode

    return Encoder(name, digest, load)


def _own_encoder(name: str, device: str) -> Encoder:
    """Return an encoder of the user's own, which is made at once because its digest needs it.

    Args:
        name: ``module:factory``.
        device: Type of the device, which is a part of the digest.

    Raises:
        MedTasksError: It cannot be made, or is no encoder.
    """
    module_name, _, factory = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # for a module of the user's that is not installed
    try:
        module = importlib.import_module(module_name)
        made = getattr(module, factory)()
    except Exception as error:  # an own module may raise anything
        raise MedTasksError(
            f"the encoder {name} cannot be made ({one_line(error)}); give module:factory, where "
            f"factory() returns an object with encode(images)"
        ) from error
    if not callable(getattr(made, "encode", None)):
        raise MedTasksError(
            f"the encoder that {name} returns has no encode(images); give it one"
        )
    decides = getattr(made, "digest", None) or [_content_digest(module, made)]
    return Encoder(name, digest_of(_VERSION, device, name, decides)[:32], lambda: made.encode)


def _content_digest(module: ModuleType, encoder: Any) -> str:
    """Return a digest of the source of a module and of the tensors of its encoder."""
    from torch import nn

    source = inspect.getsourcefile(module)
    content = hashlib.sha256(Path(source).read_bytes() if source else b"")
    parts = {"": encoder}
    if hasattr(encoder, "__dict__"):
        parts |= vars(encoder)
    for part_name, part in sorted(parts.items()):
        if not isinstance(part, nn.Module):
            continue
        for key, tensor in part.state_dict().items():
            content.update(f"{part_name}.{key}".encode())
            content.update(tensor.detach().float().cpu().numpy().tobytes())
    return content.hexdigest()


def _open_clip(folder: Path, device: Any) -> Encode:
    """Load the vision tower of an open_clip checkpoint.

    Raises:
        MedTasksError: open_clip is not installed, or the weights must not be unpickled.
        CheckpointError: The checkpoint is damaged or lacks weights.
    """
    import torch

    from medtasks.model_adapters.base.checkpoints import CheckpointError, read_json

    try:
        from open_clip import factory, transform  # type: ignore[import-untyped]  # it has no types
        from open_clip.model import _build_vision_tower  # type: ignore[import-untyped]
    except ImportError as error:
        raise MedTasksError(
            f"{folder} needs open_clip; install it with pip install 'medtasks[curate]'"
        ) from error
    config = read_json(folder / _OPEN_CLIP, "download it")
    try:
        model = config["model_cfg"]
        vision = {**model["vision_cfg"], "timm_model_pretrained": False}
        tower = _build_vision_tower(model["embed_dim"], vision, model.get("quick_gelu", False))
        weights_file = Path(factory._find_checkpoint_in_dir(folder))
        if weights_file.suffix != ".safetensors":
            check_unpickling(weights_file)
        stored = {}
        for key, value in factory.load_state_dict(str(weights_file), weights_only=True).items():
            if key.startswith("visual."):
                stored[key.removeprefix("visual.")] = value
        # Strictly: a weight that the checkpoint lacks would be random.
        tower.load_state_dict(stored)
    except MedTasksError:
        raise
    except Exception as error:  # open_clip and timm raise whatever a damaged file brings about
        raise CheckpointError(
            f"{folder} is no usable open_clip checkpoint ({one_line(error)}); download it again"
        ) from error
    settings = transform.merge_preprocess_dict(
        vars(transform.PreprocessCfg()), config.get("preprocess_cfg") or {}
    )
    settings["size"] = getattr(tower, "image_size", settings["size"])
    prepare = transform.image_transform_v2(transform.PreprocessCfg(**settings), is_train=False)
    tower.eval().requires_grad_(False).to(device)
    return lambda images: tower(torch.stack([prepare(image) for image in images]).to(device))


def _transformers(folder: Path, device: Any) -> Encode:
    """Load an image model of transformers.

    Raises:
        CheckpointError: The checkpoint is damaged, lacks weights, or is one of a vision-language model. The function
            that is returned raises one if the model has no pooled output.
    """
    from transformers import AutoConfig, AutoImageProcessor, AutoModel
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    )

    from medtasks.metrics.neural.text_encoders import (
        LOCAL,
        check_configuration,
        loading_fault,
        quiet,
    )
    from medtasks.model_adapters.base.checkpoints import CheckpointError, refuse_missing

    try:
        check_configuration(folder)
        kind = AutoConfig.from_pretrained(folder, **LOCAL).model_type
        if kind in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
            raise CheckpointError(
                f"{folder} is a vision-language model ({kind}); name it {_VLM}{folder}"
            )
        with quiet():  # warnings about missing weights are needless: these are refused below
            processor = AutoImageProcessor.from_pretrained(folder, **LOCAL)
            model, report = AutoModel.from_pretrained(folder, output_loading_info=True, **LOCAL)
    except MedTasksError:
        raise
    except Exception as error:  # transformers raises whatever a damaged file brings about
        raise CheckpointError(
            f"{folder} cannot be loaded as an image model: {loading_fault(error)}"
        ) from error
    refuse_missing(folder, report["missing_keys"])
    model.eval().requires_grad_(False).float().to(device)
    run = getattr(model, "get_image_features", model)

    def features(images: Images) -> Any:
        pixels = processor(images=list(images), return_tensors="pt")["pixel_values"]
        out = run(pixel_values=pixels.to(device))
        pooled = getattr(out, "pooler_output", None)
        if pooled is None:
            raise CheckpointError(
                f"{folder} has no pooled output; write an encoder of your own as module:factory"
            )
        return pooled.flatten(1)

    return features


def _vlm(pretrained: str, device: Any) -> Encode:
    """Load a vision-language model, of which the inputs of its language model are averaged at the image's positions.

    Raises:
        CheckpointError: The checkpoint cannot be used. The function that is returned raises one if the language model
            gets no embeddings of the image.
    """
    from medtasks.model_adapters.base.checkpoints import CheckpointError
    from medtasks.model_adapters.hf_vlm.encoding import PromptWriter, Template
    from medtasks.model_adapters.hf_vlm.loading import (
        HfVlmArguments,
        load_model,
        load_processor,
    )

    arguments = HfVlmArguments(
        pretrained=pretrained, dtype="bfloat16" if device.type == "cuda" else "float32"
    )
    processor = load_processor(arguments)
    template = getattr(processor, "chat_template", None) or processor.tokenizer.chat_template
    writer = PromptWriter(processor, None if template is None else Template(), pretrained)
    network = load_model(arguments, device)
    slot = getattr(network.config, "image_token_id", None)
    language_inputs = []

    def stop(_module: Any, _args: Any, kwargs: dict[str, Any]) -> None:
        language_inputs.append(kwargs.get("inputs_embeds"))
        raise _LanguageModelReached

    network.get_decoder().register_forward_pre_hook(stop, with_kwargs=True)

    def features(images: Images) -> Any:
        prompts = [writer.write("", 1)] * len(images)
        inputs = writer.batch(prompts, [[image] for image in images])
        for key, value in inputs.items():
            dtype = network.dtype if value.is_floating_point() else None
            inputs[key] = value.to(device, dtype)
        language_inputs.clear()
        with contextlib.suppress(_LanguageModelReached):
            network(**inputs)
        embeds = next(iter(language_inputs), None)
        at = (inputs["input_ids"] == slot).unsqueeze(-1)
        is_shown = slot is not None and at.any(1).all()
        if not is_shown or embeds is None or embeds.shape[:2] != at.shape[:2]:
            raise CheckpointError(
                f"{pretrained} puts no image among its language model's inputs; take another encoder"
            )
        return (embeds.float() * at).sum(1) / at.sum(1)

    return features


@dataclass(frozen=True)
class Embeddings:
    """The embeddings of a list of images by one encoder."""

    # Shape (embedded images, dimension), of length 1, in the order of ``kept``.
    vectors: npt.NDArray[np.float16]
    kept: npt.NDArray[np.int64]  # numbers of the images that have a vector, rising
    left_out: Counter[str]  # number of images without a vector by reason


def file_digests(files: Sequence[Path]) -> list[bytes]:
    """Return the SHA-256 of each file, in order. The digest of a file that cannot be read is empty."""

    def digest(file: Path) -> bytes:
        try:
            return bytes.fromhex(file_sha256(file))
        except OSError:
            return b""

    with ThreadPoolExecutor() as workers:
        digests = workers.map(digest, files)
        return list(
            tqdm(digests, "Reading", len(files), unit="image", leave=False, disable=None)
        )


def embed_files(
    files: Sequence[Path],
    digests: Sequence[bytes],
    encoder: Encoder,
    batch_size: int,
) -> Embeddings:
    """Return the embeddings of image files, computing those that are not on disk yet.

    Args:
        files: Images to embed.
        digests: SHA-256 of each file, see :func:`file_digests`.
        encoder: The encoder, which is loaded only if an image is new.
        batch_size: Images that the encoder gets at a time.

    Raises:
        MedTasksError: The encoder gives no vectors, or ones of another dimension than those on disk; or the disk is
            full.
    """
    path = home() / "embeddings" / f"{encoder.digest}.sqlite"
    store = _Store(path, ("images", "vector"), "", disposable=True)
    reasons = {b"": UNREADABLE}
    stored = dict(store.get(set(digests)))
    todo = {}
    for digest, file in zip(digests, files, strict=True):
        if digest and digest not in stored:
            todo[digest] = file
    encode: _Encoding | None = None
    most_failures = _GIVE_UP if stored else min(_GIVE_UP, len(todo))
    is_hidden = None if todo else True  # None: hidden without a terminal
    with tqdm(desc="Embedding", total=len(todo), unit="image", disable=is_hidden) as bar:
        for batch in _decoded_batches(todo, batch_size):
            images = {}
            for digest, image in batch:
                if isinstance(image, str):
                    reasons[digest] = image
                else:
                    images[digest] = image
            if images:
                encode = encode or _Encoding(encoder, most_failures)
                new = _unit_vectors(images, encode(list(images.values())))
                _check_dimension(encoder, store.path, _dimension(stored), _dimension(new))
                store.put(new)
                stored.update(new)
            bar.update(len(batch))
    return _join_vectors(digests, stored, reasons)


def _check_dimension(encoder: Encoder, store: Path | None, before: int, now: int) -> None:
    """Raise MedTasksError if an encoder gives vectors of another dimension than those on disk.

    Args:
        encoder: The encoder.
        store: File of the vectors on disk, None if it cannot be opened.
        before: Dimension of the vectors on disk, 0 if there are none.
        now: Dimension of the new vectors, 0 if there are none.
    """
    if before and now and before != now:
        raise MedTasksError(
            f"the encoder {encoder.name} gives {now} numbers per image, and {store} holds embeddings of {before}; "
            f"delete that file if it is another encoder's"
        )


def _join_vectors(
    digests: Sequence[bytes],
    vectors: Mapping[bytes, bytes],
    reasons: Mapping[bytes, str],
) -> Embeddings:
    """Return the vectors of images in their order, and count the images without a vector.

    Args:
        digests: Digest of each image's file, empty for one that cannot be read.
        vectors: Vectors in float16 by digest.
        reasons: Why images could not be read, by digest. Others without a vector have no usable one.
    """
    numbers = []
    left_out = Counter[str]()
    for number, digest in enumerate(digests):
        if digest in vectors:
            numbers.append(number)
        else:
            left_out[reasons.get(digest, UNUSABLE)] += 1
    joined = np.frombuffer(b"".join(vectors[digests[number]] for number in numbers), np.float16)
    shaped = joined.reshape(len(numbers), _dimension(vectors))
    return Embeddings(shaped, np.array(numbers, np.int64), left_out)


def _unit_vectors(digests: Iterable[bytes], vectors: Vectors) -> dict[bytes, bytes]:
    """Return the vectors at length 1 by digest, without those that have no such form."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
        units = (vectors / lengths).astype(np.float16)
    by_digest = {}
    for digest, unit in zip(digests, units, strict=True):
        if unit.size and np.isfinite(unit).all():
            by_digest[digest] = unit.tobytes()
    return by_digest


def _dimension(vectors: Mapping[bytes, bytes]) -> int:
    return len(next(iter(vectors.values()), b"")) // _BYTES


def _decoded_batches(
    todo: Mapping[bytes, Path], size: int
) -> Iterator[list[tuple[bytes, Image.Image | str]]]:
    """Yield batches of digests and images, each decoded while the caller encodes the batch before.

    Instead of an image that cannot be read there is the reason. All images are in RGB.
    """

    def decode(file: Path) -> Image.Image | str:
        try:
            return decode_image(io.BytesIO(read_file(file)), LINEAR).pixels
        except OSError as error:
            return fault_of_kind(error) or UNREADABLE

    waiting: deque[list[tuple[bytes, Future[Image.Image | str]]]] = deque()
    items = list(todo.items())
    if not items:
        return
    with warnings.catch_warnings(), ThreadPoolExecutor() as workers:
        # Decoders warn about metadata, and may name a file or a patient.
        warnings.simplefilter("ignore")
        for start in range(0, len(items) + size, size):
            batch = items[start : start + size]
            waiting.append([(digest, workers.submit(decode, file)) for digest, file in batch])
            if len(waiting) == 2:
                yield [(digest, image.result()) for digest, image in waiting.popleft()]


class _Encoding:
    """Encodes batches. If a batch fails, its images are encoded one by one: an odd image must not end a long run."""

    def __init__(self, encoder: Encoder, most_failures: int) -> None:
        self._encode = encoder.load()
        self._name = encoder.name
        self._most = most_failures
        self._failures = 0  # number of images in a row that failed

    def __call__(self, images: Images) -> Vectors:
        """Return vectors of shape (images, dimension): zeros for images that fail, which the caller leaves out.

        The dimension is 0 if all of them fail.
        """
        try:
            vectors = np.asarray(self._encode(images), np.float32)
        except MedTasksError:
            raise
        except Exception as error:
            if len(images) > 1:
                return self._one_by_one(images)
            self._failures += 1
            if self._failures >= self._most:
                fix = (
                    "give a smaller --batch-size"
                    if "memory" in str(error)
                    else "take another encoder"
                )
                raise MedTasksError(
                    f"the encoder {self._name} fails ({one_line(error)}); {fix}, what it has embedded before is kept"
                ) from error
            return np.zeros((1, 0), np.float32)
        if vectors.ndim != 2 or vectors.shape[0] != len(images) or not vectors.shape[1]:
            raise MedTasksError(
                f"the encoder {self._name} returned an array of shape {vectors.shape} for {len(images)} images; it has "
                f"to return one of shape ({len(images)}, dimension)"
            )
        self._failures = 0
        return vectors

    def _one_by_one(self, images: Images) -> Vectors:
        """Return vectors as a call does, from a call for each image.

        Raises:
            MedTasksError: They have different lengths, or the encoder fails on too many images in a row.
        """
        parts = [self([image]) for image in images]
        sizes = {part.shape[1] for part in parts} - {0}
        if len(sizes) > 1:
            raise MedTasksError(
                f"the encoder {self._name} gives vectors of different lengths; take another encoder"
            ) from None
        missing = np.zeros((1, max(sizes, default=0)))
        return np.concatenate([part if part.size else missing for part in parts])


class _Store(SqliteCache):
    def on_failure(self, error: Exception) -> None:
        """Raise, because vectors that are not kept are lost."""
        raise MedTasksError(
            f"cannot keep embeddings in {self.path} ({error}); make room and run it again, nothing that is in it is "
            f"computed again"
        ) from error
