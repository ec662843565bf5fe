"""Stylised facts: known values on series of known law, and the synthetic market beside real bars."""

import dataclasses

import numpy as np
import pytest

from data_gen.market.minutes import minute_market
from data_gen.market.stylised_facts import autocorrelation, hill_index, stylised_facts
from reproduction.ch5_volatility.compute import real_bars, real_rows


def test_hill_index_of_a_pareto_law():
    sizes = (1 - np.random.default_rng(0).random(400_000)) ** (-1 / 3.0)
    assert hill_index(sizes) == pytest.approx(3.0, rel=0.06)  # 4,000 sizes in the tail: one deviation is 1.6 %
    with pytest.raises(ValueError, match="no tail"):
        hill_index(np.ones(50))


def test_autocorrelation_is_numpy_s_inside_rows():
    rows = np.random.default_rng(1).normal(size=(3, 50))
    rows[1, 7] = np.nan
    pairs = [(a, b) for row in rows for a, b in zip(row[:-2], row[2:]) if np.isfinite(a) and np.isfinite(b)]
    assert autocorrelation(rows, 2) == pytest.approx(np.corrcoef(np.array(pairs).T)[0, 1])


@pytest.fixture(scope="module")
def market():
    return minute_market(0, "2021-10-01", "2021-12-31")


def test_gaussian_prices_have_the_facts_of_gaussian_returns(market):
    close = 30 * np.exp(np.cumsum(np.random.default_rng(2).normal(0, 1e-3, len(market))))
    flat = dataclasses.replace(
        market,
        open=close,
        high=close * 1.001,
        low=close / 1.001,
        close=close,
        vwap=close,
        volume=np.exp(np.random.default_rng(3).normal(0, 0.5, len(market))),
    )
    facts = stylised_facts(flat)
    assert abs(facts["excess kurtosis of r"]) < 0.15 and facts["sd of r"] == pytest.approx(1e-3, rel=0.02)
    assert abs(facts["acf of |r| at 1 min"]) < 0.03 and abs(facts["acf of r at 1 min"]) < 0.03
    assert facts["|r|, first half hour / mean"] == pytest.approx(1, abs=0.1) and facts[
        "sd of log volume"
    ] == pytest.approx(0.5, rel=0.03)
    # the variance of ten points of a random walk is sigma^2 (10^2 - 1) / (6 * 10), the price's drift aside
    relative = facts["mean of v / price²"] * facts["mean price"] ** 2 / np.mean(close**2)
    assert relative == pytest.approx(1e-6 * 99 / 60, rel=0.1)


def test_synthetic_market_has_the_season_and_the_memory(market):
    facts = stylised_facts(market)
    assert facts["|r|, first half hour / mean"] > 1.5 > 1 > facts["|r|, middle half hour / mean"]
    assert facts["acf of |r| at 60 min, season removed"] > 0.05 and abs(facts["acf of r at 1 min"]) < 0.1
    assert 3 < facts["Hill index, largest 1 %"] < 5 and 0.15 < facts["acf of VWAP returns at 1 min"] < 0.35


def test_too_little_is_refused(market):
    with pytest.raises(ValueError, match="1 full sessions"):
        stylised_facts(market.between("2021-10-01", "2021-10-01"))


@pytest.mark.skipif(real_rows() is None, reason="no real bars in IMPLICIT_DATA")
def test_synthetic_beside_real(market):
    """The market of late 2021 against AMC's bars of spring 2022, within what two stocks of one kind differ by, and
    somewhat more."""
    real, synthetic = stylised_facts(real_bars()), stylised_facts(market)
    for name, allowed in (
        ("excess kurtosis of r", 4),
        ("Hill index, largest 1 %", 0.7),
        ("acf of |r| at 1 min", 0.08),
        ("acf of |r| at 60 min", 0.08),
        ("|r|, first half hour / mean", 0.3),
        ("sd of log v", 0.3),
        ("corr of log v and the next", 0.2),
        ("mean |VWAP - close| / sd", 0.05),
        ("acf of VWAP returns at 1 min", 0.1),
    ):
        assert abs(real[name] - synthetic[name]) < allowed, name
