"""How long a model takes to read and to write on a kind of accelerator: the roofline.

- An iteration of an engine takes as long as its arithmetic or its memory traffic, whichever is
  longer, and a fixed cost of launching it.
- Reading is arithmetic: every new token goes through all active weights once. Writing is traffic:
  every iteration reads the weights and the context of every request once, for one token each.
- Peak figures are never reached; `Roofline` says which share is.
- Pure: seconds from numbers, no clock.
"""

from msgspec import Struct

from artangram.core.errors import BadInput
from artangram.core.rollout.costs import Rates

GIB = float(1 << 30)


class Hardware(Struct, frozen=True, kw_only=True):
    """One device of a kind."""

    name: str
    flops: float
    """Dense BF16 per second, at the peak."""
    bandwidth: float
    """Bytes of its own memory per second, at the peak."""
    memory: float
    """Bytes."""
    link: float
    """Bytes per second to its neighbours."""
    price: float
    """Relative to an H20."""
    mfu: float = 0.5
    """Share of the peak arithmetic that reading reaches."""


# Peaks from NVIDIA's data sheets of the SXM or PCIe board named; H800 and H20 are H100s cut in
# links and in arithmetic for export. Prices of H800 and H20 are those of ROLLART's table 2; the
# others are of the same order by rental lists and matter only for comparisons with them. Little
# arithmetic is easier to keep busy: with 0.6 of it two H800 read in 0.54 of the time of six H20,
# where ROLLART measured 0.53 at best.
HARDWARE = {
    one.name: one
    for one in (
        Hardware(name="H800", flops=989e12, bandwidth=3.35e12, memory=80e9, link=400e9, price=2.85),
        Hardware(
            name="H20", flops=148e12, bandwidth=4.0e12, memory=96e9, link=900e9, price=1.0, mfu=0.6
        ),
        Hardware(name="H100", flops=989e12, bandwidth=3.35e12, memory=80e9, link=900e9, price=2.85),
        Hardware(name="H200", flops=989e12, bandwidth=4.8e12, memory=141e9, link=900e9, price=3.3),
        Hardware(name="A100", flops=312e12, bandwidth=2.04e12, memory=80e9, link=600e9, price=1.5),
        Hardware(name="L40S", flops=362e12, bandwidth=0.864e12, memory=48e9, link=64e9, price=0.8),
    )
}


class ModelShape(Struct, frozen=True, kw_only=True):
    """What of a model decides how long it takes."""

    name: str
    params: float
    active: float
    """Parameters that one token goes through; fewer than all in a mixture of experts."""
    layers: int
    heads: int
    kv_heads: int
    head_dim: int = 128
    bytes_per_param: float = 2.0
    tp: int = 1
    """Devices that usually share it."""

    @property
    def weight_bytes(self) -> float:
        return self.params * self.bytes_per_param

    @property
    def kv_bytes(self) -> float:
        """Of one token of context: keys and values of every layer, two bytes each."""
        return 2.0 * self.layers * self.kv_heads * self.head_dim * 2.0

    @property
    def attention_flops(self) -> float:
        """Of one token for each token of context before it: scores and the weighted sum."""
        return 4.0 * self.layers * self.heads * self.head_dim


# Shapes from the models' published config.json; degrees as ROLLART rolled out.
MODELS = {
    one.name: one
    for one in (
        ModelShape(name="qwen3-8b", params=8.19e9, active=8.19e9, layers=36, heads=32, kv_heads=8),
        ModelShape(
            name="qwen3-14b", params=14.8e9, active=14.8e9, layers=40, heads=40, kv_heads=8, tp=2
        ),
        ModelShape(
            name="qwen3-32b", params=32.8e9, active=32.8e9, layers=64, heads=64, kv_heads=8, tp=4
        ),
        ModelShape(
            name="qwen3-30b-a3b", params=30.5e9, active=3.3e9, layers=48, heads=32, kv_heads=4, tp=2
        ),
    )
}


def hardware(name: str) -> Hardware:
    if name not in HARDWARE:
        raise BadInput("hardware", f"{name!r} is unknown", f"say one of {', '.join(HARDWARE)}")
    return HARDWARE[name]


def model_shape(name: str) -> ModelShape:
    if name not in MODELS:
        raise BadInput("model", f"{name!r} is unknown", f"say one of {', '.join(MODELS)}")
    return MODELS[name]


class Roofline(Struct, frozen=True, kw_only=True):
    """One replica: a model on `tp` devices of a kind."""

    hardware: Hardware
    model: ModelShape
    tp: int = 1
    mbu: float = 0.75
    """Share of the peak traffic that writing reaches."""
    tp_loss: float = 0.06
    """Speed lost by each doubling of the devices, to the links between them."""
    overhead_s: float = 0.004
    """Of one iteration: scheduling and launching."""
    prefill_chunk: int = 2048
    """Tokens read in one iteration, beside the writing."""
    free_share: float = 0.9
    """Of the memory is for weights and contexts."""

    def __post_init__(self) -> None:
        if self.tp < 1 or self.capacity <= 0:
            problem = f"{self.model.name} does not fit on {self.tp} {self.hardware.name}"
            raise BadInput("tp", problem, "give it more devices")

    @property
    def _scale(self) -> float:
        doublings = self.tp.bit_length() - 1
        return self.tp * (1.0 - self.tp_loss) ** doublings

    @property
    def capacity(self) -> int:
        """Tokens of context that fit beside the weights."""
        room = self.free_share * self.hardware.memory * self.tp - self.model.weight_bytes
        return int(room / self.model.kv_bytes)

    def iteration_s(
        self, batch: int, *, context: float, prefill: float = 0.0, seen: float = 0.0
    ) -> float:
        """`batch` requests with `context` tokens in all get one token each; some others are read.

        Each of the `prefill` new tokens has `seen` tokens before it, on average.
        """
        model, hardware = self.model, self.hardware
        attention = model.attention_flops * (context + prefill * seen)
        arithmetic = 2.0 * model.active * (batch + prefill) + attention
        weights = model.weight_bytes if prefill else self._weights_read(batch)
        traffic = weights + model.kv_bytes * context
        arithmetic_s = arithmetic / (hardware.flops * hardware.mfu * self._scale)
        traffic_s = traffic / (hardware.bandwidth * self.mbu * self._scale)
        return max(arithmetic_s, traffic_s) + self.overhead_s

    def prefill_s(self, tokens: int, *, cached: int = 0, hit_rate: float = 1.0) -> float:
        """To read a prompt alone, of which `cached` tokens were read before."""
        left, total_s = new_tokens(tokens, cached=cached, hit_rate=hit_rate), 0.0
        while left:
            chunk = min(self.prefill_chunk, left)
            seen = tokens - left + 0.5 * chunk
            total_s += self.iteration_s(0, context=0.0, prefill=chunk, seen=seen)
            left -= chunk
        return total_s

    def decode_s(self, contexts: list[int]) -> float:
        """One token for each of these."""
        return self.iteration_s(len(contexts), context=float(sum(contexts)))

    def rates(self, *, context: int = 4096, lanes: int = 32) -> Rates:
        """What routing should know: reading, and writing in company."""
        return Rates(
            prefill_per_s=self.prefill_chunk / self.prefill_s(self.prefill_chunk),
            decode_per_s=1.0 / self.decode_s([context] * lanes),
            alone_per_s=1.0 / self.decode_s([context]),
            lanes=lanes,
            context=context,
            context_token_s=(
                self.decode_s([2 * context] * lanes) - self.decode_s([context] * lanes)
            )
            / (context * lanes),
            cache_tokens=float(self.capacity),
        )

    def _weights_read(self, batch: int) -> float:
        """A few tokens wake only some of the experts, many wake all."""
        sparse = self.model.active / self.model.params
        awake = 1.0 - (1.0 - sparse) ** batch
        return self.model.weight_bytes * awake


def new_tokens(tokens: int, *, cached: int, hit_rate: float) -> int:
    """That must be read of a prompt; at least the last one, which is never cached."""
    return max(1, tokens - int(hit_rate * min(cached, tokens)))
