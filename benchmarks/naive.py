"""The update as a first version of it is written: what the fast ways are compared with.

Every sample is the prompt and its completion again, all in one padded batch; the logits of every position exist, prompt
included; old and reference log-probabilities are passes of their own. peft, autograd and AdamW as anybody uses them.
"""

from collections.abc import Callable

import torch
from peft import LoraConfig as PeftLoraConfig
from peft import PeftModel, get_peft_model
from torch import Tensor
from updates import Done, Work, clock, load_into, read_from

from pot_agent.policy.grpo import grpo_loss


def peft_config(work: Work) -> PeftLoraConfig:
    """The same adapter, on the same layers."""
    lora = work.layout.lora
    return PeftLoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=0.0,
        bias="none",
        target_modules=[site.name for site in work.layout.sites],
        task_type="CAUSAL_LM",
    )


def update_naive(work: Work) -> Callable[[], Done]:
    """Three epochs, each a pass over the whole batch."""
    model: PeftModel = get_peft_model(work.loaded.model, peft_config(work), autocast_adapter_dtype=False)
    parameters = [p for p in model.parameters() if p.requires_grad]
    for parameter in parameters:
        parameter.data = parameter.data.float()

    def run() -> Done:
        load_into(model, work.layout, work.parent)
        optimizer = torch.optim.AdamW(parameters, lr=work.config.learning_rate, weight_decay=work.config.weight_decay)
        epochs, losses = [], []
        started = clock(work.device)
        ids_GT = torch.tensor([work.prompt_ids + row for row in work.rows], device=work.device)
        mask_GT = torch.ones(len(work.rows), len(work.rows[0]), device=work.device)
        advantages_G = work.advantages.to(work.device)
        with torch.no_grad():
            old_GT = logprobs(model, ids_GT, work)
            with model.disable_adapter():
                reference_GT = logprobs(model, ids_GT, work)
        for _ in range(work.config.epochs):
            begun = clock(work.device)
            new_GT = logprobs(model, ids_GT, work)
            loss, _stats = grpo_loss(new_GT, old_GT, reference_GT, advantages_G, mask_GT, work.config)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, work.config.max_grad_norm)
            optimizer.step()
            losses.append(float(loss.detach()))
            epochs.append(clock(work.device) - begun)
        return Done(losses, read_from(model, work.layout), clock(work.device) - started, epochs)

    return run


def logprobs(model: torch.nn.Module, ids_GT: Tensor, work: Work) -> Tensor:
    """Log-probabilities of the completions, by way of those of every position."""
    logits_GTV = model(input_ids=ids_GT, attention_mask=torch.ones_like(ids_GT), use_cache=False).logits
    logprobs_GTV = (logits_GTV[:, :-1].float() / work.temperature).log_softmax(-1)
    all_GT = logprobs_GTV.gather(2, ids_GT[:, 1:].unsqueeze(2)).squeeze(2)
    return all_GT[:, len(work.prompt_ids) - 1 :]
