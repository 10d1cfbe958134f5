"""What `quantize` and `prune` say about times."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.host.cli.model_rewrite import RewriteTimes, half_share, show_effects
from edgekit.host.compiler.frontends import import_model
from edgekit.kb.targets.board import load_board
from tests.support.prune_models import pointwise_net


def test_only_boards_that_compute_in_it_have_a_cost_of_half_precision(tmp_path: Path) -> None:
    graph = import_model(pointwise_net(tmp_path))
    share = half_share(graph, load_board("rpi5"))
    assert share is not None
    assert 0 < share < 1
    assert half_share(graph, load_board("rpi4")) is None


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (RewriteTimes("rpi5", 10, 6, 5), "faster than half precision on rpi5, found about 5"),
        (RewriteTimes("rpi5", 10, 11, 5), "expected a faster model on rpi5, found no gain"),
        (RewriteTimes("rpi5", 10, 4, 5), None),
        (RewriteTimes("rpi4", 10, 6), None),
    ],
)
def test_a_model_slower_than_what_the_board_offers_anyway_is_told(
    times: RewriteTimes, said: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = pointwise_net(tmp_path)
    show_effects(file, file, None, ("in floats", "in int8"), times, None)
    heard = capsys.readouterr().err
    assert said in heard if said else not heard
