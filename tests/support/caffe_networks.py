"""Small versions of the classic Caffe networks: text and weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgekit.host.compiler.ir.types import Array
from tests.support.caffe_models import image, layer


class Net:
    """Accumulates text and blobs; weights are random, with the variance that training leaves."""

    def __init__(self, *shape: int) -> None:
        self.text = image(*shape)
        self.blobs: dict[str, list[Array]] = {}
        self._rng = np.random.default_rng(11)

    def add(self, name: str, kind: str, bottoms: str, tops: str = "", rest: str = "") -> str:
        self.text += layer(name, kind, bottoms, tops, rest)
        return tops or name

    def learned(self, *shape: int) -> Array:
        scale = np.sqrt(2 / max(int(np.prod(shape[1:])), 1)) if len(shape) > 1 else 0.1
        return (self._rng.standard_normal(shape) * scale).astype(np.float32)

    def positive(self, *shape: int) -> Array:
        return self._rng.uniform(0.5, 2, shape).astype(np.float32)

    def conv(
        self, name: str, bottom: str, channels: int, outputs: int, kernel: int, rest: str = "",
        group: int = 1, bias: bool = True, kind: str = "Convolution",
    ) -> str:  # fmt: skip
        self.blobs[name] = [self.learned(outputs, channels // group, kernel, kernel)]
        if kind == "Deconvolution":
            self.blobs[name] = [self.learned(channels, outputs // group, kernel, kernel)]
        self.blobs[name] += [self.learned(outputs)] * bias
        named = "" if bias else "bias_term: false "
        named += f"group: {group} " if group > 1 and "Depthwise" not in kind else ""
        return self.add(name, kind, bottom, rest=f"convolution_param {{ num_output: {outputs} "
                        f"kernel_size: {kernel} {named}{rest} }}")  # fmt: skip

    def relu(self, name: str) -> str:
        return self.add(f"relu_{name}", "ReLU", name, name)

    def pool(self, name: str, bottom: str, rest: str) -> str:
        return self.add(name, "Pooling", bottom, rest=f"pooling_param {{ {rest} }}")

    def dense(self, name: str, bottom: str, depth: int, outputs: int) -> str:
        self.blobs[name] = [self.learned(outputs, depth), self.learned(outputs)]
        return self.add(
            name, "InnerProduct", bottom, rest=f"inner_product_param {{ num_output: {outputs} }}"
        )

    def normalized(self, name: str, channels: int) -> str:
        """In-place BatchNorm and Scale."""
        self.blobs[f"bn_{name}"] = [
            self.learned(channels) * 3, self.positive(channels) * 3, np.array([3.0], np.float32)
        ]  # fmt: skip
        self.blobs[f"scale_{name}"] = [self.positive(channels), self.learned(channels)]
        self.add(f"bn_{name}", "BatchNorm", name, name)
        self.add(f"scale_{name}", "Scale", name, name, "scale_param { bias_term: true }")
        return name


def lenet() -> Net:
    net = Net(1, 1, 28, 28)
    net.add("scaled", "Power", "data", rest="power_param { scale: 0.00390625 }")
    net.conv("conv1", "scaled", 1, 20, 5)
    net.pool("pool1", "conv1", "pool: MAX kernel_size: 2 stride: 2")
    net.conv("conv2", "pool1", 20, 50, 5)
    net.pool("pool2", "conv2", "pool: MAX kernel_size: 2 stride: 2")
    net.dense("ip1", "pool2", 800, 100)
    net.relu("ip1")
    net.dense("ip2", "ip1", 100, 10)
    net.add("prob", "Softmax", "ip2")
    return net


def alexnet() -> Net:
    """Groups, normalization across channels, dropout; pools whose last window is clipped."""
    net = Net(1, 3, 67, 67)
    net.conv("conv1", "data", 3, 16, 11, "stride: 4")
    net.relu("conv1")
    net.add("norm1", "LRN", "conv1", rest="lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }")
    net.pool("pool1", "norm1", "pool: MAX kernel_size: 3 stride: 2")
    net.conv("conv2", "pool1", 16, 32, 5, "pad: 2", group=2)
    net.relu("conv2")
    net.pool("pool2", "conv2", "pool: MAX kernel_size: 3 stride: 2")
    net.conv("conv3", "pool2", 32, 32, 3, "pad: 1", group=2)
    net.relu("conv3")
    net.dense("fc6", "conv3", 32 * 9, 64)
    net.relu("fc6")
    net.add("drop6", "Dropout", "fc6", "fc6", "dropout_param { dropout_ratio: 0.5 }")
    net.dense("fc8", "fc6", 64, 20)
    net.add("prob", "Softmax", "fc8")
    return net


def inception() -> Net:
    net = Net(1, 8, 14, 14)
    parts = [net.relu(net.conv("b1", "data", 8, 16, 1))]
    net.relu(net.conv("r3", "data", 8, 12, 1))
    parts.append(net.relu(net.conv("b3", "r3", 12, 16, 3, "pad: 1")))
    net.relu(net.conv("r5", "data", 8, 4, 1))
    parts.append(net.relu(net.conv("b5", "r5", 4, 8, 5, "pad: 2")))
    net.pool("pool", "data", "pool: MAX kernel_size: 3 stride: 1 pad: 1")
    parts.append(net.relu(net.conv("bp", "pool", 8, 8, 1)))
    net.add("output", "Concat", " ".join(p.removeprefix("relu_") for p in parts))
    net.pool("pool2", "output", "pool: AVE kernel_size: 7 stride: 1")
    net.dense("loss3", "pool2", 48 * 64, 10)
    net.add("prob", "Softmax", "loss3")
    return net


def squeezenet() -> Net:
    """Fire modules, with global average pooling as the classifier."""
    net = Net(1, 3, 35, 35)
    net.relu(net.conv("conv1", "data", 3, 16, 3, "stride: 2"))
    net.pool("pool1", "conv1", "pool: MAX kernel_size: 3 stride: 2")
    net.relu(net.conv("squeeze", "pool1", 16, 8, 1))
    net.relu(net.conv("e1", "squeeze", 8, 16, 1))
    net.relu(net.conv("e3", "squeeze", 8, 16, 3, "pad: 1"))
    net.add("fire", "Concat", "e1 e3")
    net.relu(net.conv("conv10", "fire", 32, 12, 1, "pad: 1"))
    net.pool("pool10", "conv10", "pool: AVE global_pooling: true")
    net.add("prob", "Softmax", "pool10")
    return net


def mobilenet() -> Net:
    net = Net(1, 3, 32, 32)
    net.relu(net.normalized(net.conv("c1", "data", 3, 16, 3, "pad: 1 stride: 2", bias=False), 16))
    for i, (inner, outer, step) in enumerate([(16, 24, 1), (24, 32, 2)]):
        rest = f"pad: 1 stride: {step}"
        made = net.conv(f"dw{i}", "c1" if i == 0 else f"pw{i - 1}", inner, inner, 3, rest,
                        group=inner, bias=False)  # fmt: skip
        net.relu(net.normalized(made, inner))
        net.relu(net.normalized(net.conv(f"pw{i}", made, inner, outer, 1, bias=False), outer))
    net.pool("pool6", "pw1", "pool: AVE global_pooling: true")
    net.conv("fc7", "pool6", 32, 10, 1)
    net.add("flat", "Flatten", "fc7")
    net.add("prob", "Softmax", "flat")
    return net


def resnet() -> Net:
    net = Net(1, 3, 33, 33)
    net.relu(net.normalized(net.conv("conv1", "data", 3, 16, 7, "pad: 3 stride: 2"), 16))
    net.pool("pool1", "conv1", "pool: MAX kernel_size: 3 stride: 2")
    net.normalized(net.conv("side", "pool1", 16, 32, 1, "stride: 2", bias=False), 32)
    net.relu(net.normalized(net.conv("a", "pool1", 16, 8, 1, "stride: 2", bias=False), 8))
    net.relu(net.normalized(net.conv("b", "a", 8, 8, 3, "pad: 1", bias=False), 8))
    net.normalized(net.conv("c", "b", 8, 32, 1, bias=False), 32)
    net.add("res", "Eltwise", "side c")
    net.relu("res")
    net.pool("pool5", "res", "pool: AVE kernel_size: 4 stride: 1")
    net.dense("fc", "pool5", 32, 10)
    net.add("prob", "Softmax", "fc")
    return net


def ssd() -> Net:
    """Two feature maps with prior boxes, and the detection output."""
    net = Net(1, 3, 30, 30)
    net.relu(net.conv("f1", "data", 3, 8, 3, "pad: 1 stride: 4"))
    net.blobs["norm"] = [net.positive(8)]
    net.add("norm", "Normalize", "f1",
            rest="norm_param { across_spatial: false channel_shared: false }")  # fmt: skip
    net.relu(net.conv("f2", "f1", 8, 8, 3, "pad: 1 stride: 2"))
    shapes = ["min_size: 6 max_size: 12 aspect_ratio: 2 clip: false",
              "min_size: 12 aspect_ratio: 2 aspect_ratio: 3 clip: true step: 8"]  # fmt: skip
    for i, (bottom, count, shape) in enumerate(zip(("norm", "f2"), (4, 5), shapes, strict=True)):
        for kind, values in (("loc", 4), ("conf", 3)):
            made = net.conv(f"{kind}{i}", bottom, 8, count * values, 3, "pad: 1")
            net.add(f"{made}_perm", "Permute", made,
                    rest="permute_param { order: 0 order: 2 order: 3 order: 1 }")  # fmt: skip
            net.add(f"{made}_flat", "Flatten", f"{made}_perm")
        rest = f"{shape} flip: true variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2"
        net.add(f"prior{i}", "PriorBox", f"{bottom} data", rest=f"prior_box_param {{ {rest} }}")
    net.add("mbox_loc", "Concat", "loc0_flat loc1_flat")
    net.add("mbox_conf", "Concat", "conf0_flat conf1_flat")
    net.add("mbox_prior", "Concat", "prior0 prior1", rest="concat_param { axis: 2 }")
    net.add("conf_rows", "Reshape", "mbox_conf",
            rest="reshape_param { shape { dim: 0 dim: -1 dim: 3 } }")  # fmt: skip
    net.add("conf_soft", "Softmax", "conf_rows", rest="softmax_param { axis: 2 }")
    net.add("conf", "Flatten", "conf_soft")
    rest = (
        "num_classes: 3 share_location: true background_label_id: 0 keep_top_k: 20 "
        "confidence_threshold: 0.4 code_type: CENTER_SIZE "
        "nms_param { nms_threshold: 0.45 top_k: 50 }"
    )
    net.add("found", "DetectionOutput", "mbox_loc conf mbox_prior",
            rest=f"detection_output_param {{ {rest} }}")  # fmt: skip
    return net


NETWORKS: dict[str, Callable[[], Net]] = {
    made.__name__: made for made in (lenet, alexnet, inception, squeezenet, mobilenet, resnet, ssd)
}
