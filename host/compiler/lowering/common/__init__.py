"""What the lowerings of several families of operators share."""
