"""A shop of two services: orders (FastAPI) and mails. An order and its event are stored both or
neither, and an event is mailed once, whichever process dies when. See README.md beside this."""
