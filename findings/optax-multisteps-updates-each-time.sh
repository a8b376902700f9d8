#!/bin/sh
# optax 0.2.8: MultiSteps runs the inner optimizer in each mini-step and throws the result away in all but the
# last, so that mini-steps which change no parameter save none of its time.
# Seen: 8 runs of the inner optimizer for 2 changes of the parameters with every_k_schedule=4, 8 for 8 without.
# One would guess 2: the parameters stay put, the step counter of the inner optimizer does too, and the wrapper is
# used to pay for an expensive optimizer less often.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet jax==0.10.2 optax==0.2.8
cat > "$folder/check.py" <<'PY'
import sys

import jax
import jax.numpy as jnp
import optax

MINI_STEPS = 8


def count(every):
    """Runs of the inner optimizer, changes of the parameters and the inner optimizer's own step counter."""
    ran = []
    adam = optax.adam(0.1)

    def update(gradients, state, parameters=None):
        jax.debug.callback(lambda: ran.append(1))
        return adam.update(gradients, state, parameters)

    inner = optax.GradientTransformation(adam.init, update)
    optimizer = optax.MultiSteps(inner, every_k_schedule=every) if every > 1 else inner
    parameters = jnp.ones(4)
    state = optimizer.init(parameters)

    @jax.jit
    def step(parameters, state):
        updates, state = optimizer.update(2 * parameters, state, parameters)
        return optax.apply_updates(parameters, updates), state

    changes = 0
    for _ in range(MINI_STEPS):
        before = parameters
        parameters, state = step(parameters, state)
        changes += bool((parameters != before).any())
    jax.effects_barrier()
    adam_state = (state.inner_opt_state if every > 1 else state)[0]
    return len(ran), changes, int(adam_state.count)


plain, wrapped = count(1), count(4)
print("jax", jax.__version__, "optax", optax.__version__, "(runs of the inner optimizer, changes, its counter)")
print("alone", plain, "in MultiSteps of 4", wrapped)
sys.exit((plain, wrapped) != ((8, 8, 8), (8, 2, 2)))
PY
cd "$folder"
venv/bin/python -W ignore check.py
