"""The estimate of an update's arithmetic, against a sum worked by hand and against what torch counts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from pot_agent.config import GrpoConfig
from pot_agent.policy.engine import Engine
from pot_agent.policy.flops import ModelShape, update_flops
from tests.policy.blackboard import group_of, nothing, samples, slot_of
from tests.tiny import make_tiny_model

SHAPE = ModelShape(linear=1000, head=100, layers=2, attention_width=10)


class Counter(TorchDispatchMode):
    """Adds up torch's own counts of the linear layers' products; attention's are batched, by whichever kernel.

    (`FlopCounterMode` cannot look into a gradient formed during a forward pass.)
    """

    total = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        if function._overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm):
            self.total += flop_registry[function._overloadpacket](*args, **(kwargs or {}), out_val=found)
        return found


def test_the_formula_by_hand() -> None:
    # p = 5 - 1, c = 2 + 3: 9 tokens; pairs = 8 + (8 + 2) + (12 + 4.5) = 34.5; L D = 20
    forward = 2 * 1010 * 9 + 2 * 100 * 5 + 4 * 20 * 34.5
    backward = 2 * 1020 * 9 + 2 * 100 * 5 + 8 * 20 * 34.5
    given = {"adapter": 10, "prompt": 5, "completions": (2, 3)}
    assert update_flops(SHAPE, epochs=3, **given) == 3 * (forward + backward)
    assert update_flops(SHAPE, epochs=1, reference=True, **given) == 2 * forward + backward
    taught = 2 * 1010 * 6 + 4 * 20 * 18
    assert update_flops(SHAPE, epochs=1, teachers=(6,), **given) == forward + backward + taught


def test_the_shape_is_read_from_the_model(exact: Engine) -> None:
    vocabulary = exact._loaded.model.config.vocab_size
    linear = 2 * (48 * 48 * 2 + 48 * 24 * 2 + 3 * 48 * 96)
    assert exact._shape == ModelShape(linear=linear, head=48 * vocabulary, layers=2, attention_width=48)


def test_torch_counts_about_as_many(tmp_path: Path) -> None:
    """Many layers, because the first needs no gradient of its input, nor the last one of the prompt beyond its keys and
    values; rows of one length, because padding does not count."""
    engine = Engine(str(make_tiny_model(tmp_path / "deep", layers=12)), device="cpu", dtype="float64", home=tmp_path)
    alike = [replace(sample, ids=sample.ids[:2], logprobs=sample.logprobs[:2]) for sample in samples()]
    group = group_of(engine, samples=alike)
    with Counter() as counter:
        engine._trainer.update(slot_of(engine), group, GrpoConfig(beta=0.0), nothing)
    estimate = update_flops(
        replace(engine._shape, attention_width=0),
        adapter=group.parent.numel(),
        prompt=len(group.prompt_ids),
        completions=[2, 2, 2],
        epochs=3,
    )
    assert estimate == pytest.approx(counter.total, rel=0.1)
