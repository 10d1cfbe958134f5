"""Matrix products, and convolutions that are one: f32, 8-bit, 4-bit, 8-bit with outliers apart."""
