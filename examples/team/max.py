"""Max has an opinion on everything, and asks Sarah about it."""

import sys

words = sys.stdin.read().split()
print(f"I read {len(words)} words, and I say: tea. [NEXT: sarah]")
