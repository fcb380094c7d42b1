"""Coordinators: who is in a group and owns what, which offsets are committed. Pure: no I/O, no clock, no event loop.

A coordinator's state is what its log partition says. Requests and the passing of time make it decide; what it decides
leaves as effects, in order, and its lasting state changes only when the shell replays the records among them.
"""
