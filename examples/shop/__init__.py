"""A shop of three services: orders (FastAPI), mails, and parcels (Java). An order and its event are
stored both or neither, and an event is mailed and packed once, whichever process dies when. See
README.md beside this."""
