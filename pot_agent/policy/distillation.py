"""Self-distillation from feedback: the policy that has read what went wrong teaches the one that has not.

As in SDPO (Self-Distillation Policy Optimization, arXiv 2601.20802): a sample's own tokens are scored twice, by the
student under the sample's prompt and by the teacher, the same weights at the version being trained, under that prompt
with the program and its execution feedback added. The token-level divergence between the two next-token distributions
is the loss; the teacher gets no gradient. It needs no spread of rewards, so it learns where every thought fails alike.

The teacher is kept as hidden states, one row a token, and both distributions are formed a chunk of tokens at a time
over the whole vocabulary: no top-k, no distribution kept.

Limits: it is as good as the model's reading of feedback; the paper finds it behind GRPO for models of 1.5 billion
parameters and fewer. Deviation: the teacher is the version being trained (phi_t), not a moving average.
"""

from torch import Tensor

from pot_agent.config import Divergence
from pot_agent.policy.head import Head, by_chunks, wide_logits


def divergences(student_NH: Tensor, teacher_NH: Tensor, head: Head, temperature: float, kind: Divergence) -> Tensor:
    """Divergence of each token's next-token distributions at the temperature, in nats, [N].

    `reverse` is KL(student || teacher), `forward` KL(teacher || student), `jsd` the Jensen-Shannon divergence. The
    gradient reaches `student_NH` alone.
    """

    def chunk(student_CH: Tensor, teacher_CH: Tensor) -> Tensor:
        student_CV = wide_logits(student_CH, head, temperature).log_softmax(1)
        teacher_CV = wide_logits(teacher_CH, head, temperature).log_softmax(1).detach()
        if kind == "reverse":
            return _kl(student_CV, teacher_CV)
        if kind == "forward":
            return _kl(teacher_CV, student_CV)
        middle_CV = (0.5 * (student_CV.exp() + teacher_CV.exp())).clamp(min=_LEAST).log()
        return 0.5 * (_kl(student_CV, middle_CV) + _kl(teacher_CV, middle_CV))

    return by_chunks(chunk, student_NH, teacher_NH.detach())


_LEAST = 1e-37


def _kl(one_CV: Tensor, other_CV: Tensor) -> Tensor:
    return (one_CV.exp() * (one_CV - other_CV)).sum(1)
