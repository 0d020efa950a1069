"""Figures, and the pages, tables and charts that show them."""
