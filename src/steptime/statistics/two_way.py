"""What trials and blocks each add to the launches that ran in them, by weighted least squares."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy  # type: ignore[import-untyped]  # scipy ships no types; its modules are imported when used
from numpy.typing import NDArray

_DENSE = 0.05
"""A layout with a larger share of trials x blocks that ran is multiplied faster as a dense matrix."""

Array = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True)
class Layout:
    """Which launch is of which trial and block."""

    rows: Indices
    columns: Indices
    trials: int
    blocks: int

    @cached_property
    def connected(self) -> Indices:
        """Of each trial and then each block the component: those of blocks that no trials connect differ."""
        # As scipy.sparse.csgraph does, whose import takes longer.
        labels = np.arange(self.trials)
        while True:
            of_blocks = np.full(self.blocks, self.trials)
            np.minimum.at(of_blocks, self.columns, labels[self.rows])
            lower = labels.copy()
            np.minimum.at(lower, self.rows, of_blocks[self.columns])
            if np.array_equal(lower, labels):
                return np.unique(np.concatenate([labels, of_blocks]), return_inverse=True)[1]
            labels = lower

    def free_blocks(self, groups: Indices) -> Array:
        """Return the degrees of freedom of the effects of blocks, for each group of blocks that no trial connects.

        Args:
            groups: the number of each block's; the lowest is 0.
        """
        firsts = np.unique(self.connected[self.trials :], return_index=True)[1]
        size = int(groups.max()) + 1
        free: Array = np.subtract(np.bincount(groups), np.bincount(groups[firsts], minlength=size), dtype=np.float64)
        return free

    def trial_means(self, values: Array) -> Array:
        means: Array = sums(self.rows, values) / np.bincount(self.rows, minlength=self.trials)
        return means

    def two_way(self, values: Array, weights: Array) -> tuple[Array, Array]:
        """Return the effects of blocks and what trials and blocks leave, by weighted least squares.

        The larger of both groups is eliminated, which leaves one normal equation for each member of the smaller one.
        Sets of blocks that no trial connects are centred by themselves: nothing shows how they differ.

        Args:
            values: of each launch.
            weights: of each trial.
        """
        of_launch = weights[self.rows]
        present = scipy.sparse.coo_array(
            (of_launch, (self.rows, self.columns)), shape=(self.trials, self.blocks)
        ).tocsr()
        trials, blocks = ((sums(each, of_launch), sums(each, of_launch * values)) for each in (self.rows, self.columns))
        connected = self.connected
        if self.trials < self.blocks:
            means = _eliminated(present, trials, blocks, connected[: self.trials])
            effects = (blocks[1] - present.T @ means) / blocks[0]
        else:
            effects = _eliminated(present.T.tocsr(), blocks, trials, connected[self.trials :])
        of_component = connected[self.trials :]
        effects -= (sums(of_component, effects) / np.bincount(of_component))[of_component]
        shifted = values - effects[self.columns]
        return effects, shifted - self.trial_means(shifted)[self.rows]


def sums(groups: Indices, values: Array) -> Array:
    """Return the sum of the values of each group."""
    sums: Array = np.bincount(groups, values)  # type: ignore[assignment]  # numpy types them as integers, with weights too
    return sums


def _eliminated(
    joint: "scipy.sparse.csr_array", own: tuple[Array, Array], others: tuple[Array, Array], component: Indices
) -> Array:
    """Return the effects of one group after those of the other were eliminated; one of each component is 0.

    Args:
        joint: weights, this group x the other.
        own: of each member of this group the total weight, and the weighted sum of its values.
        others: likewise of the other group.
        component: of each member of this group; members of two components share no launch.
    """
    scaled = joint @ scipy.sparse.diags_array(1.0 / others[0])
    dense = joint.nnz > _DENSE * joint.shape[0] * joint.shape[1]
    normal = np.diag(own[0]) - (scaled.toarray() @ joint.toarray().T if dense else (scaled @ joint.T).toarray())
    right = own[1] - scaled @ others[1]
    # The first member of each component is held at 0: sums within a component do not depend on where it lies.
    held = np.unique(component, return_index=True)[1]
    normal[held, :] = normal[:, held] = 0.0
    normal[held, held] = 1.0
    right[held] = 0.0
    effects: Array = scipy.linalg.solve(normal, right, assume_a="pos")
    return effects
