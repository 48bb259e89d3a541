"""Codecs: from a page's vectors to the bytes that are stored, and back."""
