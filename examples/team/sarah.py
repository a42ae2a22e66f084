"""Sarah has heard what Max said, and agrees or not."""

import sys

heard = sys.stdin.read()
agrees = "tea" in heard.lower()
print("Tea it is." if agrees else "I would rather have coffee.")
