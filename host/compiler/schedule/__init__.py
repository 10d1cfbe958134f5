"""Graph → Schedule: subgraphs, the order of operators and their units, by a model of their cost."""
