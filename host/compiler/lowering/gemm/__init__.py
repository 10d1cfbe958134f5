"""Matrix products: f32, 8-bit, 4-bit, with outliers apart."""
