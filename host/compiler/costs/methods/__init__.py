"""Methods of products and of operators, and the formulas by which one is chosen."""
