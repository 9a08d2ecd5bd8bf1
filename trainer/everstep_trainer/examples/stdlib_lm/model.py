"""The model and its training step in plain JAX: a pre-norm transformer over bytes, Adam, all in float32.

The mesh has two axes: state is replicated over ``replica`` (slices) and sharded over ``fsdp`` (within a slice); each
batch is split over both. All weights are one long vector, and so are Adam's two moments: a step then costs one gather
of the weights and one sum of the gradients, however many matrices there are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

State = dict[str, Any]
Weights = dict[str, jax.Array]


@dataclass(frozen=True)
class Size:
    """The model's and the batch's size; the defaults make about 0.44 million weights."""

    vocabulary: int = 256
    width: int = 128
    heads: int = 4
    layers: int = 2
    length: int = 64
    sequences: int = 16
    learning_rate: float = 2e-3
    warmup: int = 20

    def matrices(self) -> dict[str, tuple[int, int]]:
        """Names and shapes of the weights, in the order in which the vector holds them."""
        width = self.width
        shapes = {"embed": (self.vocabulary, width), "place": (self.length, width), "out": (width, self.vocabulary)}
        for layer in range(self.layers):
            shapes |= {
                f"attend{layer}": (width, 3 * width),
                f"project{layer}": (width, width),
                f"expand{layer}": (width, 4 * width),
                f"contract{layer}": (4 * width, width),
            }
        return shapes


def make_mesh(replicas: int) -> Mesh:
    """All devices, slice by slice: ``replica`` x ``fsdp``."""
    return Mesh(np.array(jax.devices()).reshape(replicas, -1), ("replica", "fsdp"))


def abstract_state(size: Size, mesh: Mesh) -> State:
    """Shapes and shardings of the state."""
    length = sum(rows * columns for rows, columns in size.matrices().values())
    split = NamedSharding(mesh, PartitionSpec("fsdp"))
    vector = jax.ShapeDtypeStruct((length,), jnp.float32, sharding=split)
    count = jax.ShapeDtypeStruct((), jnp.int32, sharding=NamedSharding(mesh, PartitionSpec()))
    return {"weights": vector, "mean": vector, "square": vector, "count": count}


def fresh_state(size: Size, mesh: Mesh) -> State:
    """Weights and optimizer state of a fresh start, the same on every machine."""
    generator = np.random.default_rng(0)
    parts = [generator.normal(0, shape[0] ** -0.5, shape).ravel() for shape in size.matrices().values()]
    weights = np.concatenate(parts).astype(np.float32)
    values = {"weights": weights, "mean": 0 * weights, "square": 0 * weights, "count": np.zeros((), np.int32)}
    return {
        name: jax.make_array_from_callback(like.shape, like.sharding, lambda index, value=values[name]: value[index])
        for name, like in abstract_state(size, mesh).items()
    }


def make_step(size: Size, mesh: Mesh) -> Callable[[State, np.ndarray[Any, Any]], tuple[State, jax.Array]]:
    """The training step: state and the whole batch's rows in, new state and loss out."""
    everywhere = NamedSharding(mesh, PartitionSpec())
    rows_over_all = NamedSharding(mesh, PartitionSpec(("replica", "fsdp")))
    shardings = {name: leaf.sharding for name, leaf in abstract_state(size, mesh).items()}

    def update(state: State, rows: jax.Array) -> tuple[State, jax.Array]:
        gathered = jax.lax.with_sharding_constraint(state["weights"], everywhere)
        value, gradient = jax.value_and_grad(lambda vector: loss(size, unpacked(size, vector), rows))(gathered)
        return adam(size, state, gradient), value

    compiled = jax.jit(update, out_shardings=(shardings, everywhere), donate_argnums=0)

    def step(state: State, rows: np.ndarray[Any, Any]) -> tuple[State, jax.Array]:
        placed = jax.make_array_from_callback(rows.shape, rows_over_all, lambda index: rows[index])
        result: tuple[State, jax.Array] = compiled(state, placed)
        return result

    return step


def unpacked(size: Size, vector: jax.Array) -> Weights:
    """The matrices of the vector."""
    weights, start = {}, 0
    for name, (rows, columns) in size.matrices().items():
        weights[name] = vector[start : start + rows * columns].reshape(rows, columns)
        start += rows * columns
    return weights


def loss(size: Size, weights: Weights, rows: jax.Array) -> jax.Array:
    """Mean cross entropy of each byte given those before it."""
    inputs, targets = rows[:, :-1], rows[:, 1:]
    hidden = weights["embed"][inputs] + weights["place"]
    for layer in range(size.layers):
        hidden = hidden + attention(size, weights, layer, normalized(hidden))
        hidden = hidden + jax.nn.gelu(normalized(hidden) @ weights[f"expand{layer}"]) @ weights[f"contract{layer}"]
    log_probabilities = jax.nn.log_softmax(normalized(hidden) @ weights["out"])
    return -jnp.mean(jnp.take_along_axis(log_probabilities, targets[..., None], axis=-1))


def attention(size: Size, weights: Weights, layer: int, hidden: jax.Array) -> jax.Array:
    batch, length, width = hidden.shape
    heads = (hidden @ weights[f"attend{layer}"]).reshape(batch, length, 3, size.heads, width // size.heads)
    query, key, value = heads[:, :, 0], heads[:, :, 1], heads[:, :, 2]
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / np.sqrt(width // size.heads)
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), value)
    return mixed.reshape(batch, length, width) @ weights[f"project{layer}"]


def normalized(hidden: jax.Array) -> jax.Array:
    return hidden * jax.lax.rsqrt(jnp.mean(hidden**2, axis=-1, keepdims=True) + 1e-6)


def adam(size: Size, state: State, gradient: jax.Array) -> State:
    """One Adam update with linear warm-up."""
    count = state["count"] + 1
    rate = size.learning_rate * jnp.minimum(1.0, count / size.warmup)
    mean = 0.9 * state["mean"] + 0.1 * gradient
    square = 0.99 * state["square"] + 0.01 * gradient**2
    moved = (mean / (1 - 0.9**count)) / (jnp.sqrt(square / (1 - 0.99**count)) + 1e-8)
    return {"weights": state["weights"] - rate * moved, "mean": mean, "square": square, "count": count}


def weights_sha256(state: State) -> str:
    """Digest of all weights, the same on every host. A collective: every host calls it."""
    from jax.experimental import multihost_utils

    whole = multihost_utils.process_allgather(state["weights"], tiled=True)
    return hashlib.sha256(np.ascontiguousarray(whole).tobytes()).hexdigest()
