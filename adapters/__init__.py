"""One folder an agent: where its sessions are, how they are parsed, how it is wired."""
