"""One file per API key. Each ends with its declaration, which `penstock.broker.router` lists."""
