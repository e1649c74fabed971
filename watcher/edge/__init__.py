"""One outside thing a module: files, processes, model servers, the state database."""
