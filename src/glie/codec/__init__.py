"""From a page's vectors to the few that are stored."""
