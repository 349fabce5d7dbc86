"""What a node of the exchange decides: messages in, effects out."""
