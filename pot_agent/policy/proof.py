"""Before a sampler that is another program serves anybody: that it samples what it says, and adapters at all.

Two draws. Under the base its log-probabilities must be the trainer's: a hidden top-p, a temperature applied twice, or
other weights would show. Under an adapter made for this, whose effect is large, they must be those of the adapter and
not of the base: a wrong prefix of the modules' names, for one, samples the base without a word.

Limits: twelve tokens after a short prompt; each update has a canary of its own.
"""

from typing import TYPE_CHECKING

from pot_agent.config import LoraConfig
from pot_agent.errors import AdapterNotSampledError, PolicyError
from pot_agent.policy.canary import CLEAR, TOKENS, distance, judge
from pot_agent.policy.sampler import Drawn, Request

if TYPE_CHECKING:
    from torch import Tensor

    from pot_agent.policy.engine import Engine

TEMPERATURE = 0.7
MOST_NOISE = 0.3
"""Between sampler and trainer under the base, root mean square, in nats: bfloat16 stays well below."""
SCALES = (0.02, 0.1, 0.5)
"""Of the random B, tried in turn until its effect stands out."""
SEED = 0


def prove(engine: "Engine") -> None:
    """Raises `PolicyError` where the sampler is not to be trusted; `AdapterNotSampledError` for its adapters."""
    layout = engine.layout(LoraConfig(rank=1))
    request, drawn = _draw(engine, None)
    noise = distance(drawn.logprobs, engine.score_tokens(layout, None, request, drawn))
    if not noise <= MOST_NOISE:
        raise PolicyError(
            f"the sampler's log-probabilities lie {noise:.3g} nats from the trainer's under the base model "
            f"({MOST_NOISE} at most): it runs other weights, or changes the distribution; use sampler=transformers "
            "(POT_SAMPLER)",
            value=noise,
        )
    for scale in SCALES:
        vector = engine.noisy(layout, SEED, scale)
        request, drawn = _draw(engine, vector)
        base = engine.score_tokens(layout, None, request, drawn)
        new = engine.score_tokens(layout, vector, request, drawn)
        if distance(new, base) >= CLEAR * max(noise, 1e-3):
            judge(drawn.logprobs, new, {"the base": base}, noise)
            return
    raise AdapterNotSampledError(
        f"no adapter that was tried changes what {engine.capabilities.model} says by more than the noise of "
        f"{noise:.3g} nats, so that nothing can show that the sampler runs one; use sampler=transformers (POT_SAMPLER)",
        value=noise,
    )


def _draw(engine: "Engine", vector: "Tensor | None") -> tuple[Request, Drawn]:
    request = engine.request(
        prompt_ids=engine.chat.encode([{"role": "user", "content": "Write a function that adds two numbers."}]),
        n=1,
        temperature=TEMPERATURE,
        max_tokens=TOKENS,
        seed="proof",
        stop=(),
        check=lambda: None,
    )
    layout = None if vector is None else engine.layout(LoraConfig(rank=1))
    (drawn,) = engine.draw(request, layout, vector)
    return request, drawn
