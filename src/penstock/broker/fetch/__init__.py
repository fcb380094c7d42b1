"""Fetch, in three parts: `sessions` knows what a client asks for (KIP-227), `plan` reads partitions into slices within
the byte limits, `waiting` holds a fetch that found too little until an append or its deadline."""
