"""What Keras does in its own way, for networks that are to be those of Keras: padding, batch norm, how kernels begin."""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn import functional

TRUNCATED = 0.87962566103423978  # standard deviation of a standard normal number that is kept within two of its own


class SameConv2d(nn.Conv2d):
    """A convolution of 1 × 1 or 3 × 3, padded as "same": (b, before, h, w) → (b, after, ⌈h / stride⌉, ⌈w / stride⌉).

    torch pads both ends alike. At stride 2 an even side needs one zero only, and Keras puts it at the end.
    """

    def __init__(self, before: int, after: int, size: int, stride: int = 1, bias: bool = True) -> None:
        super().__init__(before, after, size, stride, padding=size // 2 if stride == 1 else 0, bias=bias)

    def forward(self, inputs: Tensor) -> Tensor:
        if self.kernel_size[0] > 1 and self.stride[0] > 1:
            height, width = inputs.shape[-2:]
            inputs = functional.pad(inputs, (width % 2, 1, height % 2, 1))
        return super().forward(inputs)


def normalization(channels: int) -> nn.BatchNorm2d:
    """Batch norm with Keras' constants; its momentum of 0.99 is the share of the old, torch's that of the new."""
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


def glorot_uniform(convolution: nn.Conv2d) -> None:
    """Set a kernel to uniform numbers within ±√(6 / (fan in + fan out)).

    Of a depthwise kernel Keras counts all channels that come in, and those that come out of a single one.
    """
    pixels = math.prod(convolution.kernel_size)
    fans = pixels * (convolution.in_channels + convolution.out_channels // convolution.groups)
    bound = math.sqrt(6 / fans)
    nn.init.uniform_(convolution.weight, -bound, bound)


def he_normal(weight: Tensor) -> None:
    """Set weights (after, …) to normal numbers, cut off at two deviations, that keep a variance of 2 / fan in."""
    deviation = math.sqrt(2 / weight[0].numel()) / TRUNCATED
    nn.init.trunc_normal_(weight, std=deviation, a=-2 * deviation, b=2 * deviation)
