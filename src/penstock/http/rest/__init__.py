"""The REST API: messages in, messages out, and nothing that a person with curl could not guess."""
