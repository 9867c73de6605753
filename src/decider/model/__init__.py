"""Models: found, fetched, converted, loaded; and the label head. It refuses to know requests and rows."""
