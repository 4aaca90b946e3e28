"""What all databases have in common: the tables, what they are asked and in which order, and how
the answers are understood. No database is opened here and no broker: who has them runs the steps.
"""
