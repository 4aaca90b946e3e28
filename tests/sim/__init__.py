"""Fakes of the world with faults and a seed: a disk that loses, a network that drops."""
