"""Strategies: search algorithms that choose the points to measure next, and their building blocks."""

from searchlab.strategies.annealing import Annealing
from searchlab.strategies.bandit import Bandit
from searchlab.strategies.bayesian import Bayesian
from searchlab.strategies.draft import Draft
from searchlab.strategies.evolutionary import Evolutionary
from searchlab.strategies.forest import Forest
from searchlab.strategies.genetic import Genetic
from searchlab.strategies.gradient import Gradient
from searchlab.strategies.guided import Guided
from searchlab.strategies.local_search import Local
from searchlab.strategies.mcts import Mcts
from searchlab.strategies.metropolis import Metropolis
from searchlab.strategies.selection import Diverse, Epsilon, Polish, Selection, Share, Top
from searchlab.strategies.shortlist import Shortlist
from searchlab.strategies.with_optuna import Optuna
from searchlab.strategies.yardsticks import Grid, Random

__all__ = [
    "Annealing", "Bandit", "Bayesian", "Diverse", "Draft", "Epsilon", "Evolutionary", "Forest", "Genetic", "Gradient",
    "Grid", "Guided", "Local", "Mcts", "Metropolis", "Optuna", "Polish", "Random", "Selection", "Share", "Shortlist",
    "Top",
]  # fmt: skip
