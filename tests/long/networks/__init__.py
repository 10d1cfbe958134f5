"""Networks that people run on small boards, as PyTorch modules with random weights.

Written from papers, or built by torchvision, timm and transformers. Nothing here imports edgekit:
the modules run in an environment of their own, which `scripts/networks` makes.
"""

import torch

# Compiled operators of torchvision need its CUDA libraries. No network here has one, but without
# this declaration torchvision does not import.
_TORCHVISION = torch.library.Library("torchvision", "DEF")
for _name in ("nms", "qnms"):
    _TORCHVISION.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
