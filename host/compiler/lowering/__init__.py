"""Graph → Plan: a rule per operator chooses kernel, tile and packed weights; then offsets."""
