"""MobileNet v1 as in Keras: the paper's teachers, and its students on SVHN and CIFAR-10."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from wdistill.core.errors import bad_value
from wdistill.training.models.keras import SameConv2d, glorot_uniform, normalization

STEM = 32  # filters of the first convolution
STAGES = ((64,), (128, 128), (256, 256), (512,) * 6, (1024, 1024))  # filters of the blocks


class MobileNet(nn.Module):
    """Depthwise separable convolutions with five strides of 2; images (b, channels, h, w) → logits (b, classes).

    `width` multiplies all filters: Keras' alpha, and how we read the paper's "depth multiplier".
    `depth_multiplier` is Keras' argument of that name: the filters of a depthwise convolution for every channel.
    As in keras.applications without stored weights: kernels are initialised Glorot uniform and biases at 0, batch norm has
    epsilon 1e-3 and momentum 0.99, dropout is 1e-3, and padding at stride 2 is at the end.
    """

    def __init__(self, channels: int, classes: int, width: float = 1.0, depth_multiplier: int = 1) -> None:
        super().__init__()
        if not 1 / STEM <= width < math.inf:
            expected, remedy = f"at least 1/{STEM}: one filter in the first convolution", "write width=0.25, for example"
            raise bad_value("not the width of a MobileNet", "MobileNet", f"width={width:g}", expected, remedy)
        self.arguments = {"channels": channels, "classes": classes, "width": float(width)}
        self.arguments["depth_multiplier"] = depth_multiplier
        before = int(STEM * width)
        self.stem = nn.Sequential(SameConv2d(channels, before, 3, 2, bias=False), normalization(before), nn.ReLU6())
        self.stages = nn.Sequential()
        for stage, filters in enumerate(STAGES):
            blocks = nn.Sequential()
            for block, after in enumerate(int(count * width) for count in filters):
                blocks.append(_block(before, after, depth_multiplier, stride=2 if stage > 0 and block == 0 else 1))
                before = after
            self.stages.append(blocks)
        self.classifier = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Dropout(1e-3), nn.Conv2d(before, classes, 1), nn.Flatten()
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                glorot_uniform(module)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        maps = self.stem(inputs).contiguous(memory_format=torch.channels_last)  # faster on a CPU
        logits: Tensor = self.classifier(self.stages(maps))
        return logits


class EndPadding(nn.Module):
    """Pad maps (b, c, h, w) with one row and one column of zeros at the end.

    A side of one pixel is padded at both ends, else the 3 × 3 that follows would not fit; Keras has no images so small.
    """

    def forward(self, maps: Tensor) -> Tensor:
        height, width = maps.shape[-2:]
        return functional.pad(maps, (int(width == 1), 1, int(height == 1), 1))


def _block(before: int, after: int, depth_multiplier: int, stride: int) -> nn.Sequential:
    """A depthwise 3 × 3 and a pointwise 1 × 1 convolution."""
    middle = before * depth_multiplier
    return nn.Sequential(
        *([EndPadding()] if stride == 2 else []),
        nn.Conv2d(before, middle, 3, stride, 2 - stride, groups=before, bias=False),
        normalization(middle),
        nn.ReLU6(),
        nn.Conv2d(middle, after, 1, bias=False),
        normalization(after),
        nn.ReLU6(),
    )
