"""Writes networks as ONNX files, by either exporter of PyTorch.

    python -m tests.long.networks.export FOLDER [NAME ...] [--exporter new old] [--small]

Files are FOLDER/NAME-EXPORTER.onnx, small ones FOLDER/NAME.onnx; existing ones are kept.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor, nn

from tests.long.networks.registry import NETWORKS, SMALL, Network

_OPSET = {"new": 18, "old": 17}
_LEAST_VARIANCE = 1e-3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", choices=[*NETWORKS, *SMALL, []], metavar="NAME")
    parser.add_argument("--exporter", nargs="+", choices=list(_OPSET), default=list(_OPSET))
    parser.add_argument("--small", action="store_true", help="those that are quick to estimate")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    failed = 0
    networks = SMALL if options.small else NETWORKS
    for name in options.names or networks:
        ending = "" if options.small else "-{}"
        wanted = {e: options.folder / f"{name}{ending.format(e)}.onnx" for e in options.exporter}
        try:
            write(networks[name], {e: path for e, path in wanted.items() if not path.exists()})
        except Exception as error:  # of any kind: the others are exported all the same
            failed += 1
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
    return int(failed > 0)


def write(network: Network, paths: Mapping[str, Path]) -> None:
    """Writes files by exporter."""
    if not paths:
        return
    module, inputs = built(network)
    for exporter, path in paths.items():
        begin = time.process_time()
        export(module, inputs, list(network.shapes), exporter, path)
        print(f"{path.name}  {time.process_time() - begin:.1f} CPU s", flush=True)


def built(network: Network) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The network with random weights, and inputs for it."""
    torch.manual_seed(0)
    module = network.make().eval()
    inputs = tuple(
        torch.randint(network.tokens[name], shape) if name in network.tokens else torch.rand(shape)
        for name, shape in network.shapes.items()
    )
    hooks = [
        part.register_forward_pre_hook(_normalize)
        for part in module.modules()
        if isinstance(part, nn.modules.batchnorm._BatchNorm)
    ]
    if not hooks:
        return module, inputs
    # Statistics in doubles become the same floats on every machine.
    module.double()
    exact = [x.double() if x.is_floating_point() else x for x in inputs]
    with torch.no_grad():
        module(*exact)
        with suppress(RuntimeError):  # layers before the first that needs a batch of one
            module(*(_varied(x) if x.ndim == 4 and len(exact) == 1 else x for x in exact))
    for hook in hooks:
        hook.remove()
    return module.float(), inputs


def _varied(image: Tensor) -> Tensor:
    """A batch of images that differ in contrast, brightness and smoothness. With the statistics of
    one, what another has more of grows in each layer, until f16 overflows."""
    coarse = (
        nn.functional.interpolate(
            torch.rand_like(image[..., ::step, ::step]), image.shape[2:], mode="bilinear"
        )
        for step in (4, 16, 64)
    )
    return torch.cat([image, 2 * image - 1, *coarse, 0 * image, 0 * image + 1])


def _normalize(norm: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Takes statistics from the module's input, so that no map of a deep network vanishes."""
    axes = [axis for axis in range(inputs[0].ndim) if axis != 1]
    norm.running_mean.copy_(inputs[0].mean(axes))
    norm.running_var.copy_(inputs[0].var(axes, correction=0).clamp(min=_LEAST_VARIANCE))


def export(
    module: nn.Module, inputs: tuple[Tensor, ...], names: list[str], exporter: str, path: Path
) -> None:
    torch.onnx.export(
        module,
        inputs,
        str(path),
        input_names=names,
        opset_version=_OPSET[exporter],
        dynamo=exporter == "new",
        external_data=False,
        verbose=False,
    )


if __name__ == "__main__":
    raise SystemExit(main())
