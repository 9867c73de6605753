"""From row lengths to forwards: bucket ladders, prices, batch plans. Integers in, integers out; no torch, no tokens."""
