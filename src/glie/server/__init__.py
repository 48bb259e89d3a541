"""`glie serve`: an index as a local web application, and the API behind it.

    from glie.server.app import create_app
    app = create_app("my.glie", read_only=True)  # for any ASGI server

The page is one HTML file, one style sheet and one script. It loads nothing from other machines.
"""
