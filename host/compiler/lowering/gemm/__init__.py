"""Matrix products: f32, 8-bit, 4-bit, and 8-bit with separate outliers."""
