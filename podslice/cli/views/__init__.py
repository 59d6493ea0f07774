"""Documents and tables for the terminal. Pure: values in, lines or JSON out."""
