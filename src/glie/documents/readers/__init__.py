"""What runs in the reader process: a file a kind of document. Nothing here imports glie itself."""
