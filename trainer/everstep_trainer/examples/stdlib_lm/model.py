"""The model and its training step in plain JAX: a pre-norm transformer over bytes, Adam, all in float32.

The mesh has two axes: state is replicated over ``replica`` (slices) and sharded over ``fsdp`` (within a slice); each
batch is split over both.
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


@dataclass(frozen=True)
class Size:
    """The model's and the batch's size; the defaults make about 0.45 million parameters."""

    vocabulary: int = 256
    width: int = 128
    heads: int = 4
    layers: int = 2
    length: int = 64
    sequences: int = 32
    learning_rate: float = 2e-3
    warmup: int = 20


def make_mesh(replicas: int) -> Mesh:
    """All devices, slice by slice: ``replica`` x ``fsdp``."""
    return Mesh(np.array(jax.devices()).reshape(replicas, -1), ("replica", "fsdp"))


def initial_state(size: Size) -> State:
    """Parameters and optimizer state of a fresh start. Pure, so that it can be traced for shapes alone."""
    keys = iter(jax.random.split(jax.random.key(0), 4 * size.layers + 3))
    width = size.width

    def normal(*shape: int) -> jax.Array:
        return jax.random.normal(next(keys), shape, jnp.float32) / np.sqrt(shape[0])

    parameters = {
        "embed": normal(size.vocabulary, width),
        "place": normal(size.length, width),
        "out": normal(width, size.vocabulary),
        "layers": [
            {
                "attend": normal(width, 3 * width),
                "project": normal(width, width),
                "expand": normal(width, 4 * width),
                "contract": normal(4 * width, width),
                "scales": jnp.ones((2, width), jnp.float32),
            }
            for _ in range(size.layers)
        ],
    }
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    return {"parameters": parameters, "mean": zeros, "square": zeros, "count": jnp.zeros((), jnp.int32)}


def abstract_state(size: Size, mesh: Mesh) -> State:
    """Shapes and shardings of the state: every matrix is split by its last axis over ``fsdp``."""

    def place(leaf: Any) -> jax.ShapeDtypeStruct:
        spec = PartitionSpec(*([None] * (leaf.ndim - 1)), "fsdp") if leaf.ndim else PartitionSpec()
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec))

    shapes: State = jax.tree.map(place, jax.eval_shape(lambda: initial_state(size)))
    return shapes


def fresh_state(size: Size, mesh: Mesh) -> State:
    shardings = jax.tree.map(lambda leaf: leaf.sharding, abstract_state(size, mesh))
    state: State = jax.jit(lambda: initial_state(size), out_shardings=shardings)()
    return state


def make_step(size: Size, mesh: Mesh) -> Callable[[State, np.ndarray[Any, Any]], tuple[State, jax.Array]]:
    """The training step: state and the whole batch's rows in, new state and loss out."""
    rows_over_all = NamedSharding(mesh, PartitionSpec(("replica", "fsdp")))
    shardings = jax.tree.map(lambda leaf: leaf.sharding, abstract_state(size, mesh))
    everywhere = NamedSharding(mesh, PartitionSpec())

    def update(state: State, rows: jax.Array) -> tuple[State, jax.Array]:
        value, gradients = jax.value_and_grad(lambda parameters: loss(size, parameters, rows))(state["parameters"])
        return adam(size, state, gradients), value

    compiled = jax.jit(update, out_shardings=(shardings, everywhere), donate_argnums=0)

    def step(state: State, rows: np.ndarray[Any, Any]) -> tuple[State, jax.Array]:
        placed = jax.make_array_from_callback(rows.shape, rows_over_all, lambda index: rows[index])
        result: tuple[State, jax.Array] = compiled(state, placed)
        return result

    return step


def loss(size: Size, parameters: State, rows: jax.Array) -> jax.Array:
    """Mean cross entropy of each byte given those before it."""
    inputs, targets = rows[:, :-1], rows[:, 1:]
    hidden = parameters["embed"][inputs] + parameters["place"]
    for layer in parameters["layers"]:
        hidden = hidden + attention(size, layer, normalized(hidden) * layer["scales"][0])
        wide = jax.nn.gelu(normalized(hidden) * layer["scales"][1] @ layer["expand"])
        hidden = hidden + wide @ layer["contract"]
    log_probabilities = jax.nn.log_softmax(normalized(hidden) @ parameters["out"])
    return -jnp.mean(jnp.take_along_axis(log_probabilities, targets[..., None], axis=-1))


def attention(size: Size, layer: State, hidden: jax.Array) -> jax.Array:
    batch, length, width = hidden.shape
    heads = (hidden @ layer["attend"]).reshape(batch, length, 3, size.heads, width // size.heads)
    query, key, value = heads[:, :, 0], heads[:, :, 1], heads[:, :, 2]
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / np.sqrt(width // size.heads)
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), value)
    return mixed.reshape(batch, length, width) @ layer["project"]


def normalized(hidden: jax.Array) -> jax.Array:
    return hidden * jax.lax.rsqrt(jnp.mean(hidden**2, axis=-1, keepdims=True) + 1e-6)


def adam(size: Size, state: State, gradients: State) -> State:
    """One Adam update with linear warm-up."""
    count = state["count"] + 1
    rate = size.learning_rate * jnp.minimum(1.0, count / size.warmup)
    mean = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, state["mean"], gradients)
    square = jax.tree.map(lambda old, new: 0.99 * old + 0.01 * new**2, state["square"], gradients)

    def moved(parameter: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
        first, second = first / (1 - 0.9**count), second / (1 - 0.99**count)
        return parameter - rate * first / (jnp.sqrt(second) + 1e-8)

    parameters = jax.tree.map(moved, state["parameters"], mean, square)
    return {"parameters": parameters, "mean": mean, "square": square, "count": count}


def weights_sha256(state: State) -> str:
    """Digest of all weights, the same on every host. A collective: every host calls it."""
    from jax.experimental import multihost_utils

    whole = multihost_utils.process_allgather(state["parameters"], tiled=True)
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_flatten_with_path(whole)[0]:
        digest.update(jax.tree_util.keystr(path).encode())
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()
