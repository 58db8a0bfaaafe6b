"""Leaderboards: ranked entries of several runs, cards for repeating them, and re-measurement of their best."""

from searchlab.lab.leaderboard.board import Leaderboard, Standing, boards
from searchlab.lab.leaderboard.cards import Card, TaskCard, cards
from searchlab.lab.leaderboard.pools import RunPool, pools
from searchlab.lab.leaderboard.searched_tables import recorded_tables
from searchlab.lab.leaderboard.sheet import FORMS, Sheet
from searchlab.lab.leaderboard.sheet_columns import board_sheets, comparison_sheets

__all__ = [
    "FORMS", "Leaderboard", "Card", "RunPool", "Sheet", "Standing", "TaskCard", "board_sheets", "boards", "cards",
    "comparison_sheets", "pools", "recorded_tables",
]  # fmt: skip
