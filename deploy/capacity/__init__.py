"""How much one replica holds, how many a load needs, and what the autoscaler makes of a day."""
