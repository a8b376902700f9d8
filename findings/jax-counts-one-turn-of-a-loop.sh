#!/bin/sh
# jax 0.10.2: cost_analysis() has the operations of one turn of lax.scan and lax.fori_loop, however many turns there
# are, before compiling (lower) and behind it (compile), although the number of turns is written in the program.
# A network whose layers are scanned, or accumulation over micro-batches by scan, so has a fraction of its operations,
# and an MFU as much too low; unroll=length counts all of them.
# Seen: eight products of 64 x 64 matrices: 4194304 written out and with unroll=8, 524290 by scan and fori_loop.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat > "$folder/check.py" <<'PY'
import jax
from jax import lax, numpy

TURNS, SIDE = 8, 64
weights = inputs = numpy.ones((SIDE, SIDE))


def written_out(values):
    for _ in range(TURNS):
        values = values @ weights
    return values


def scanned(values, unroll=1):
    return lax.scan(lambda carried, _: (carried @ weights, None), values, None, length=TURNS, unroll=unroll)[0]


def looped(values):
    return lax.fori_loop(0, TURNS, lambda _, carried: carried @ weights, values)


def unrolled(values):
    return scanned(values, unroll=TURNS)


def operations(function):
    """Return the operations that are counted before and behind compiling."""
    lowered = jax.jit(function).lower(inputs)
    return [each.cost_analysis()["flops"] for each in (lowered, lowered.compile())]


counted = {each.__name__: operations(each) for each in (written_out, unrolled, scanned, looped)}
print("jax", jax.__version__, counted)
turn = 2 * SIDE**3
assert counted["written_out"] == counted["unrolled"] == [TURNS * turn] * 2
# The loop's own counter adds two.
assert all(turn <= each < 1.01 * turn for name in ("scanned", "looped") for each in counted[name])
PY
cd "$folder"
JAX_PLATFORMS=cpu venv/bin/python -W ignore check.py
