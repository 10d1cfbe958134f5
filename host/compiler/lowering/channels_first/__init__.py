"""Images in channels-first layout, where that is faster."""
