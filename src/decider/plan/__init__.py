"""Pure arithmetic: which rows run together, in which shapes, at which price. No torch, no devices."""
