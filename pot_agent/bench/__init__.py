"""Benchmarks: data sets, a runner that counts everything, and a report."""
