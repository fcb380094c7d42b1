"""Doubles and fixtures: for our own tests, and for those of people who build on Penstock."""
