"""What tests of several folders share: cases, graphs, damages, servers, C drivers."""
