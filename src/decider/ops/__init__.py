"""Operations an engine puts into its own copy of a model: other arithmetic, or the same in another form."""
