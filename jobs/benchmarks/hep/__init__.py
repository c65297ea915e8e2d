"""What benchmark ``hepcnn`` is made of: the published rules, the samples that they hand out, the network."""
