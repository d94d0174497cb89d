from collections import Counter, defaultdict

counters = defaultdict(Counter)
