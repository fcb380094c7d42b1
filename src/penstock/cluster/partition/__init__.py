"""One partition as this node sees it: what may be appended, what may be read, and up to where."""
