"""Leaderboards: entries of several runs in order, cards that let them be repeated, and second looks at their best."""

from searchlab.lab.leaderboard.board import Board, Standing, boards
from searchlab.lab.leaderboard.cards import Card, TaskCard, cards
from searchlab.lab.leaderboard.pools import Pool, pools
from searchlab.lab.leaderboard.sheet import FORMS, Sheet
from searchlab.lab.leaderboard.sheets import board_sheets, comparison_sheets
from searchlab.lab.leaderboard.tables import recorded_tables

__all__ = [
    "FORMS", "Board", "Card", "Pool", "Sheet", "Standing", "TaskCard", "board_sheets", "boards", "cards",
    "comparison_sheets", "pools", "recorded_tables",
]  # fmt: skip
