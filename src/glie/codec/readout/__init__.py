"""What a codec adds to its anchors: nothing, a generative decoder, or codewords for residuals."""
