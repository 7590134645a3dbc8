"""Listeners of the library, for taps: postern.jax.tap(loss, postern.listen.csv("loss.csv")),
or under a name by postern.register.

They are functions of C++, so a program that taps to them needs no interpreter while it runs.
"""

from __future__ import annotations

from ._postern import (
    FirstNonFinite as first_non_finite,
    Histogram as histogram,
    Images as images,
    Listener,
    Png as png,
    Progress as progress,
    Record as record,
    Stats as stats,
    TensorBoard as tensorboard,
    csv,
    jsonl,
    report,
    show_text,
)

__all__ = [
    "Listener",
    "csv",
    "first_non_finite",
    "histogram",
    "images",
    "jsonl",
    "png",
    "progress",
    "record",
    "report",
    "show_text",
    "stats",
    "tensorboard",
]
