"""Graph → Schedule: subgraphs, operator order and units, chosen by a cost model."""
