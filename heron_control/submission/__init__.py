"""Submit and kill: what the command line does on the local cluster, and the api server on its own."""
