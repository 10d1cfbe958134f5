"""The models that measurements, tables of figures and tests go through, and their inputs."""
