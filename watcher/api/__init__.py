"""The local API on a Unix socket (design 4), for editors and bars that cannot afford to start Python."""
