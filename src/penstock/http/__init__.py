"""HTTP: one ASGI app in a process of its own, a client of the cluster like any other.

`app` puts it together; `gate` is what every request passes first. `rest/` is the REST API, `proxy/` what existing REST
proxy clients call (v2 and v3), `api/` what the console calls, `registry/` the schema registry. `producing`, `consuming`
and `administration` are the three ways to the cluster. `process` is the process: sockets, signals, uvicorn.
"""
