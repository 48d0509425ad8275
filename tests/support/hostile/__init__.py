"""What the hostile suite works with: attacks, and what must not change while they go on."""
