"""What is known of a core: tables of the kit and of the user, loaded and looked up."""
