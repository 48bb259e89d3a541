"""glie inside other libraries: a file a host, which only its own module imports."""
