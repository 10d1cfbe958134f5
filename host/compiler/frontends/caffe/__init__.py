"""Caffe networks → `Graph`."""
