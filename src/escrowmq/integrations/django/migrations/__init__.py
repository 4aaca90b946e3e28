"""Migrations of the outbox's tables, which have no models."""
