"""The version, which the package's metadata read too. Refuses to know more. Trap: a checkout on the path has no metadata."""

VERSION = "0.1.0"
