"""What every room stands on: error codes, ids, the settings table and the ports.

Nothing here does I/O. Ports are the Protocols through which cores reach files, time and chance; the real ones
live in `penstock.broker.ports`, the simulated ones in `penstock.testing`.
"""
