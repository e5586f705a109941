"""Configuration as data: frozen, keyword-only, checked when built, defaults from the paper (arXiv 2601.20379).

Three things are apart: the *budget* (how much is searched: `quick`, `paper`), the *profile* (how the loss is formed:
`paper`, `corrected`) and the *settings* of the machine (`pot_agent/settings.py`).
"""

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, Self

from pot_agent.errors import ConfigError
from pot_agent.require import is_finite, require, require_choice, require_count, require_finite, require_kind

Prior = Literal["sample", "rescore", "uniform"]
Backup = Literal["mean", "max"]
CommitMode = Literal["child", "reroot"]
Std = Literal["population", "sample"]
LossNormalisation = Literal["sequence", "token", "constant"]
KlEstimator = Literal["k3_ratio", "k3", "k2", "k1"]
Reference = Literal["synced", "base", "current"]
Moments = Literal["keep", "reset"]
Divergence = Literal["reverse", "forward", "jsd"]
Profile = Literal["paper", "corrected"]
BudgetName = Literal["quick", "paper"]

SMALL_MODEL_PARAMETERS = 1_000_000_000
"""Below this many parameters the `corrected` profile trains at 1e-3: a rank-8 adapter on a small model barely moves at
the paper's 1e-4."""

MAX_TARGETS = 1024
LARGEST = 1e30
"""Numbers that weights are scaled by: float32 ends at 3e38, and they are multiplied."""
MAX_GENERATED_TESTS = 100


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """How much is searched, and how (paper table of hyper-parameters; section 3.2)."""

    iterations: int = 20
    """MCTS iterations M: expansions of k thoughts each."""
    width: int = 3
    """Thoughts sampled per expansion: the paper's k, and the group size G."""
    max_depth: int = 8
    """Nodes at this depth are terminal."""
    c_puct: float = 1.414
    """Exploration constant C of PUCT."""
    temperature: float = 0.7
    """Sampling temperature of thoughts; the trainer divides its logits by it too."""
    max_new_tokens: int = 2048
    """Tokens of one thought."""
    max_prompt_tokens: int | None = None
    """Tokens of a prompt; None: the model's context less `max_new_tokens`."""
    end_at_block: bool = False
    """End a thought where its first block of code closes, since a thought is one program: what a model adds is neither
    waited for nor trained on. Leave it off for models that write examples before their answer."""
    feedback_tokens: int = 200
    """Tokens of execution feedback shown for each thought of the history."""
    prior: Prior = "sample"
    """PUCT's P(s, a): softmax over siblings of the mean log-probability as sampled (`sample`), rescored under the
    newest adapter (`rescore`), or `uniform`."""
    backup: Backup = "mean"
    """Q as the mean or the max of the rewards backed up."""
    commit: CommitMode = "child"
    """`child`: the greedy thought joins the tree below the expanded node and the root stays. `reroot`: it becomes the
    root, so at most `max_depth` nodes are expanded."""
    pool: int = 1
    """Draws of `width` thoughts at one node, at most: while all rewards of its group are equal (nothing to learn), the
    next iteration draws there again and the group is the union. 1: a group is one draw (paper)."""

    def __post_init__(self) -> None:
        require_count("iterations", self.iterations)
        require_count("width", self.width)
        require_count("max_depth", self.max_depth)
        require_finite("c_puct", self.c_puct, "a finite number, 0 or more", positive=False)
        require_finite("temperature", self.temperature, "a finite number above 0")
        require_count("max_new_tokens", self.max_new_tokens)
        if self.max_prompt_tokens is not None:
            require_count("max_prompt_tokens", self.max_prompt_tokens)
        require_count("feedback_tokens", self.feedback_tokens, least=0)
        require_choice("prior", self.prior, ("sample", "rescore", "uniform"))
        require_kind("end_at_block", self.end_at_block, bool, "True or False")
        require_choice("backup", self.backup, ("mean", "max"))
        require_choice("commit", self.commit, ("child", "reroot"))
        require_count("pool", self.pool)


@dataclass(frozen=True, kw_only=True)
class LoraConfig:
    """The transient adapter (paper: rank 8; the rest is this project's choice)."""

    rank: int = 8
    alpha: float = 16.0
    """Scale of the adapter's output is alpha / rank."""
    dropout: float = 0.0
    targets: str | tuple[str, ...] = "all-linear"
    """`all-linear`, or names of modules (at most 1,024): each means every layer whose name is, or ends in, it."""

    def __post_init__(self) -> None:
        require_count("rank", self.rank)
        require_finite("alpha", self.alpha, "a finite number above 0")
        require(self.alpha <= LARGEST, "alpha", self.alpha, f"at most {LARGEST:g}")
        require(is_finite(self.dropout) and 0.0 <= self.dropout < 1.0, "dropout", self.dropout, "in [0, 1)")
        if self.targets != "all-linear":
            named = isinstance(self.targets, (tuple, list)) and 0 < len(self.targets) <= MAX_TARGETS
            named = named and all(isinstance(target, str) and target for target in self.targets)
            rule = f"`all-linear` or a list of 1 to {MAX_TARGETS:,} names of modules, such as ['q_proj', 'v_proj']"
            require(named, "targets", self.targets, rule)
            object.__setattr__(self, "targets", tuple(self.targets))


@dataclass(frozen=True, kw_only=True)
class GrpoConfig:
    """One GRPO update (paper section 3.3 and table of hyper-parameters).

    The defaults are the profile `paper`; `GrpoConfig.corrected()` gives the other. Deviations from the paper's text:
    the printed loss has its sign turned (it is to be maximised), the coefficient of the KL term is 0.02 alone (the
    paper also names "a fixed 0.005"), and the KL estimator carries the ratio so that its gradient is that of the
    reverse KL.
    """

    epochs: int = 3
    learning_rate: float = 1e-4
    clip: float = 0.3
    """PPO's epsilon: ratios are clipped to [1 - clip, 1 + clip]."""
    beta: float = 0.02
    """Coefficient of the KL term."""
    kl: KlEstimator = "k3_ratio"
    """`k3_ratio`: r * k3 with the gradient through r too; `k3`, `k2`, `k1` as plain losses."""
    reference: Reference = "synced"
    """pi_ref: a snapshot at the first version boundary at or after every `reference_sync_steps` optimizer steps, the
    base at first (`synced`); the base throughout (`base`); the version being trained (`current`)."""
    reference_sync_steps: int = 10
    std: Std = "population"
    advantage_floor: float = 1e-4
    """eta: the least standard deviation that advantages are divided by."""
    advantage_clip: float = 5.0
    """C_A: advantages are clipped to [-C_A, C_A]."""
    normalise_advantage: bool = True
    """False leaves R - mean(R) as it is (Dr. GRPO)."""
    loss_normalisation: LossNormalisation = "sequence"
    """`sequence`: 1/|tau| for each completion, then the mean over the group (paper); `token`: mean over all tokens of
    the group; `constant`: divided by G x `constant_length` (Dr. GRPO)."""
    constant_length: int = 2048
    importance_cap: float | None = None
    """Truncate importance weights pi_trainer / pi_sampler at this value; None: no correction (paper)."""
    mask_truncated: bool = False
    """Leave completions that ran out of tokens out of the loss."""
    max_grad_norm: float = 1.0
    weight_decay: float = 0.0
    adam_betas: tuple[float, float] = (0.9, 0.999)
    adam_epsilon: float = 1e-8
    moments: Moments = "keep"
    """Adam's moments between updates: kept for the episode, or reset at each update."""
    distil: float = 0.0
    """Weight of self-distillation from feedback (SDPO, arXiv 2601.20802); 0: none. Above 0 a failed thought's feedback
    is learned from where all rewards are equal too."""
    distil_divergence: Divergence = "reverse"
    """`reverse`: KL(student || teacher), as SDPO; `forward`: KL(teacher || student); `jsd`: Jensen-Shannon."""

    def __post_init__(self) -> None:
        require_count("epochs", self.epochs)
        require_finite("learning_rate", self.learning_rate, "a finite number above 0")
        require(self.learning_rate <= LARGEST, "learning_rate", self.learning_rate, f"at most {LARGEST:g}")
        require(is_finite(self.clip) and 0.0 < self.clip < 1.0, "clip", self.clip, "in (0, 1)")
        require_finite("beta", self.beta, "a finite number, 0 or more", positive=False)
        require_choice("kl", self.kl, ("k3_ratio", "k3", "k2", "k1"))
        require_choice("reference", self.reference, ("synced", "base", "current"))
        require_count("reference_sync_steps", self.reference_sync_steps)
        require_choice("std", self.std, ("population", "sample"))
        require_finite("advantage_floor", self.advantage_floor, "a finite number above 0")
        require_finite("advantage_clip", self.advantage_clip, "a finite number above 0")
        require_kind("normalise_advantage", self.normalise_advantage, bool, "True or False")
        require_kind("mask_truncated", self.mask_truncated, bool, "True or False")
        require_choice("loss_normalisation", self.loss_normalisation, ("sequence", "token", "constant"))
        require_count("constant_length", self.constant_length)
        require(self.constant_length < 2**63, "constant_length", self.constant_length, "below 2**63")
        if self.importance_cap is not None:
            require_finite("importance_cap", self.importance_cap, "a finite number above 0")
        require_finite("max_grad_norm", self.max_grad_norm, "a finite number above 0")
        require_finite("weight_decay", self.weight_decay, "a finite number, 0 or more", positive=False)
        betas = tuple(self.adam_betas) if isinstance(self.adam_betas, (tuple, list)) else ()
        fit = len(betas) == 2 and all(is_finite(b) and 0 <= b <= 0.999999 for b in betas)
        require(fit, "adam_betas", self.adam_betas, "two from 0 to 0.999999")
        object.__setattr__(self, "adam_betas", betas)
        require_finite("adam_epsilon", self.adam_epsilon, "a finite number above 0")
        require_choice("moments", self.moments, ("keep", "reset"))
        require_finite("distil", self.distil, "a finite number, 0 or more", positive=False)
        require_choice("distil_divergence", self.distil_divergence, ("reverse", "forward", "jsd"))

    @classmethod
    def corrected(cls, *, parameters: int | None = None) -> Self:
        """Token-mean loss, truncated importance weights, and 1e-3 for models below one billion parameters."""
        small = parameters is not None and parameters < SMALL_MODEL_PARAMETERS
        return cls(learning_rate=1e-3 if small else 1e-4, loss_normalisation="token", importance_cap=2.0)


@dataclass(frozen=True, kw_only=True)
class PotConfig:
    """Everything a run is decided by. Build one with `quick()` or `paper()` and change fields by keyword."""

    search: SearchConfig = field(default_factory=SearchConfig)
    lora: LoraConfig = field(default_factory=LoraConfig)
    grpo: GrpoConfig | None = None
    """None: what `profile` says for the policy's model."""
    profile: Profile = "paper"
    learn: bool = True
    """False: search alone (MCTS with the same commits, prompts and seeds; `internalize` does nothing)."""
    max_seconds: float | None = None
    """Wall-clock bound of one run, in seconds; None: none."""
    program_seconds: float = 10.0
    """CPU seconds of one test, where the problem does not say."""
    generated_tests: int = 0
    """Tests that the model is asked to write (at most 100), from the statement alone, once a group has not solved the
    problem. They count in the reward that is trained on and nowhere else; without learning none are asked for."""
    generated_weight: float = 0.3
    """Their weight w: the training reward is (1 - w) x visible share + w x generated share."""
    snapshots: bool = False
    """Whether every version of the adapter is kept, after the run's end too, so that a checkpoint of any iteration can
    be gone on from. Needs a state folder (POT_STATE); its age (POT_STATE_SECONDS) ends it."""
    stream_text: bool = False
    """Whether the text of each thought is told while it is written, as events `text` (`pot_agent/events.py`)."""
    seed: int = 0

    def __post_init__(self) -> None:
        require_kind("search", self.search, SearchConfig, "a SearchConfig")
        require_kind("lora", self.lora, LoraConfig, "a LoraConfig")
        require_kind("grpo", self.grpo, (GrpoConfig, type(None)), "a GrpoConfig, or None")
        require_kind("learn", self.learn, bool, "True or False")
        require_kind("snapshots", self.snapshots, bool, "True or False")
        require_kind("stream_text", self.stream_text, bool, "True or False")
        require_choice("profile", self.profile, ("paper", "corrected"))
        if self.max_seconds is not None:
            require_finite("max_seconds", self.max_seconds, "a finite number of seconds above 0, or None")
        require_finite("program_seconds", self.program_seconds, "a finite number of seconds above 0")
        require_count("generated_tests", self.generated_tests, least=0)
        few = self.generated_tests <= MAX_GENERATED_TESTS
        require(few, "generated_tests", self.generated_tests, f"at most {MAX_GENERATED_TESTS}")
        weighs = is_finite(self.generated_weight) and 0.0 <= self.generated_weight <= 1.0
        require(weighs, "generated_weight", self.generated_weight, "in [0, 1]")
        require_count("seed", self.seed, least=0)
        require(self.seed < 2**63, "seed", self.seed, "below 2**63")

    @classmethod
    def paper(cls, **changes: Any) -> Self:
        """The paper's budget: 20 iterations of 3 thoughts of 2,048 tokens, 10 s a test."""
        return cls().change(**changes)

    @classmethod
    def quick(cls, **changes: Any) -> Self:
        """A budget for a CPU: 6 iterations of 8 thoughts of 256 tokens, prompts of 2,048 tokens, 4 s a test.

        Eight because a decoding step of eight rows takes little longer than one of three
        (`benchmarks/bench_sampling.py`), and rewards of eight siblings are seldomer all alike.
        """
        search = SearchConfig(iterations=6, width=8, max_new_tokens=256, max_prompt_tokens=2048, end_at_block=True)
        return cls(search=search, program_seconds=4.0).change(**changes)

    @classmethod
    def of(cls, budget: BudgetName, **changes: Any) -> Self:
        """The budget of that name."""
        require_choice("budget", budget, ("quick", "paper"))
        return cls.quick(**changes) if budget == "quick" else cls.paper(**changes)

    def change(self, **changes: Any) -> Self:
        """A copy with fields changed; those of `search` may be given flat, as in `change(iterations=4, seed=1)`.

        None leaves a field as it is, except `max_seconds` and `grpo`, where None is a value.
        """
        own = {f.name for f in fields(self)}
        flat = {f.name for f in fields(SearchConfig)}
        unknown = sorted(set(changes) - own - flat)
        if unknown:
            raise ConfigError(f"no such setting: {', '.join(unknown)}; there are {', '.join(sorted(own | flat))}")
        keep_none = {"max_seconds", "grpo"}
        given = {name: value for name, value in changes.items() if value is not None or name in keep_none}
        search = given.pop("search", self.search)
        require_kind("search", search, SearchConfig, "a SearchConfig")
        search = replace(search, **{name: given.pop(name) for name in sorted(flat) if name in given})
        return replace(self, search=search, **given)

    def grpo_for(self, parameters: int | None) -> GrpoConfig:
        """The loss configuration in force for a model of that many parameters."""
        if self.grpo is not None:
            return self.grpo
        return GrpoConfig.corrected(parameters=parameters) if self.profile == "corrected" else GrpoConfig()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, tuples as lists."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
