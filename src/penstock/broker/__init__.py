"""The shell: sockets, files, threads and timers around the pure rooms.

A request reads in this order: server -> connection -> protocol.frames -> router -> handlers/api_NN_name -> (fetch/) ->
cluster.partition -> log. One event loop, no locks; what blocks (fsync) runs in a thread.
"""
