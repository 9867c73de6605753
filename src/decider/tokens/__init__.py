"""From typed questions to rows of token ids: tokenizer, labels, layouts, `decider_config.json`. No model, no torch."""
