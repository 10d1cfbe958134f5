"""Networks that people run on small boards, as PyTorch modules with random weights.

Written from papers, or built by torchvision, timm and transformers. Nothing here imports edgekit:
the modules run in an environment of their own, which `scripts/networks` makes.
"""

import torch

# Compiled operators of torchvision need the PyTorch that they were built for. No network here has
# one, but torchvision does not import without this declaration unless they load.
try:
    import torchvision  # noqa: F401
except (ImportError, RuntimeError):
    _TORCHVISION = torch.library.Library("torchvision", "DEF")
    for _name in ("nms", "qnms"):
        _TORCHVISION.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
