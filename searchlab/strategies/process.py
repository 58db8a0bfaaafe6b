"""Process: a Gaussian process over a fixed set of candidates, cheap to extend by one measurement at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize

from searchlab.search.knob import Floats

Single = npt.NDArray[np.float32]

_LENGTHS = np.log(0.03), np.log(20.0)
_NOISE = np.log(1e-5), 0.0


class Process:
    """Gaussian process with a Matern 5/2 kernel and one length scale per column, fitted as the maximum a posteriori.

    The state is the rows of V = L^-1 K(known, candidates), which do not depend on the measured values: a new
    measurement adds one row, and new values for old rows cost nothing.
    """

    def __init__(self, candidates: Floats, theta: Floats | None = None) -> None:
        self.candidates = candidates.astype(np.float32)
        columns = candidates.shape[1]
        self._prior = np.append(np.full(columns, np.log(0.5 * np.sqrt(columns))), np.log(1e-2))
        self._width = np.append(np.full(columns, 0.7), 1.0)
        self.theta = self._prior.copy() if theta is None else theta  # logarithms of the length scales and of the noise
        self.restart(candidates[:0])

    def __len__(self) -> int:
        return self._count

    def fit(self, x: Floats, y: Floats, iterations: int = 15) -> None:
        """Fits length scales and noise to standardised values, starting from those of the last fit."""
        rows, columns = x.shape
        apart = np.ascontiguousarray(((x[:, None] - x[None]) ** 2).transpose(2, 0, 1)).reshape(columns, -1)

        def loss(theta: Floats) -> tuple[float, Floats]:
            return self._loss(theta, apart, y)

        limits = [_LENGTHS] * columns + [_NOISE]
        found = minimize(loss, self.theta, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": iterations})
        self.theta = found.x

    def _loss(self, theta: Floats, apart: Floats, y: Floats) -> tuple[float, Floats]:
        """The negative log posterior and its gradient; the scale of the values is optimised in closed form."""
        n = len(y)
        inverse = np.exp(-2 * theta[:-1])
        s = np.sqrt(5 * (inverse @ apart).reshape(n, n))
        decay = np.exp(-s)
        k = (1 + s + s * s / 3) * decay
        k[np.diag_indices(n)] += np.exp(theta[-1])
        try:
            lower = np.linalg.cholesky(k)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros(len(theta))
        k_inverse = cho_solve((lower, True), np.eye(n), check_finite=False)
        a = k_inverse @ y
        scale = max(float(y @ a) / n, 1e-12)
        off = (theta - self._prior) / self._width
        value = 0.5 * n * np.log(scale) + np.log(np.diag(lower)).sum() + 0.5 * float(off @ off)
        g = k_inverse - np.outer(a, a) / scale
        slope = 0.5 * (apart @ (g * (5 / 3) * (1 + s) * decay).ravel()) * inverse
        noise = 0.5 * float(np.trace(g)) * np.exp(theta[-1])
        return float(value), np.append(slope, noise) + off / self._width

    def restart(self, x: Floats) -> None:
        """Replaces all rows by these, with the length scales of the last fit."""
        n = self._count = len(x)
        self._noise = float(np.exp(self.theta[-1]))
        self._inverse = np.exp(-self.theta[:-1]).astype(np.float32)
        self._scaled = self.candidates * self._inverse
        self._norms = (self._scaled**2).sum(axis=1)
        self._lower = np.zeros((n + 64, n + 64))
        self._rows = np.empty((n + 64, len(self.candidates)), np.float32)
        if n:
            k = self._kernel(x.astype(np.float32))
            among = _matern(_squares(x * self._inverse, x * self._inverse)) + self._noise * np.eye(n)
            self._lower[:n, :n] = np.linalg.cholesky(among)
            lower = self._lower[:n, :n].astype(np.float32)
            self._rows[:n] = solve_triangular(lower, k, lower=True, check_finite=False)
        self._variance = np.maximum(1 - np.einsum("ij,ij->j", self._rows[:n], self._rows[:n]), 1e-6)

    def add(self, candidate: int) -> None:
        """Adds a candidate to the known ones."""
        n = self._count
        if n == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
            self._lower = np.pad(self._lower, (0, n))
        to = self._rows[:n, candidate].copy()
        pivot = np.sqrt(max(1 + self._noise - float(to @ to), 1e-6))
        self._rows[n] = (self._kernel(self.candidates[candidate][None])[0] - to @ self._rows[:n]) / np.float32(pivot)
        self._lower[n, :n], self._lower[n, n] = to, pivot
        self._variance = np.maximum(self._variance - self._rows[n] ** 2, 1e-6)
        self._count = n + 1

    def predict(self, y: Floats) -> tuple[Single, Single]:
        """Mean and standard deviation of all candidates, given the values of all rows in the order they were added."""
        n = self._count
        a = solve_triangular(self._lower[:n, :n], y, lower=True, check_finite=False)
        scale = max(float(a @ a) / n, 1e-3)
        mean = a.astype(np.float32) @ self._rows[:n]
        return mean, np.sqrt(np.float32(scale) * self._variance)

    def _kernel(self, x: Single) -> Single:
        scaled = x * self._inverse
        squares = (scaled**2).sum(axis=1)[:, None] + self._norms - 2 * (scaled @ self._scaled.T)
        return _matern(np.maximum(squares, 0))


def _squares(a: Floats, b: Floats) -> Floats:
    return np.asarray(((a[:, None] - b[None]) ** 2).sum(axis=2))


def _matern(squares: npt.NDArray[Any]) -> npt.NDArray[Any]:
    s = np.sqrt(5 * squares)
    return np.asarray((1 + s + s * s / 3) * np.exp(-s))
