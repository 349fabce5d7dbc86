"""Operations: changes that move data, and how far they are."""
