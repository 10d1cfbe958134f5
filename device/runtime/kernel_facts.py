"""Numbers that the kernels in C and their callers in Python share, told here once.

Every C file gets each of them from the compiler as a macro EK_<NAME> (`-D`); no file of
device/kernels defines one.
"""

from __future__ import annotations

# Operators on whole tensors
UNARY_CHUNK = 4096  # elements of one task
BINARY_CHUNK = MAP_CHUNK = 4096  # elements of the innermost dimension in one task
LINEAR_SUM_CHUNK = 4096  # elements of one task
LINEAR_SUM_BITS = 15  # lower part of a factor and of the addend
LINEAR_SUM_WIDENING = 7  # where sixteen are added at once, codes are times 1 << this
LINEAR_SUM_FRACTION = 2  # bits of their sum, in 16
BINARY_DIMS = 4  # of a broadcast that is collapsed
MAP_DIMS = 6
MATMUL_DIMS = 4  # of a stack of matrices
PACKED_ROWS = 128  # of a task of their product
PACKED_DEPTH = 256  # of k that is packed at a time
HALF_SUMS = 128  # products whose sum is f16, in products of two computed matrices and long ones
COPY_DIMS = 6
TRANSPOSE_TILE = 256  # rows and columns of one task
REDUCE_BLOCK = 64  # results that a task keeps at once
POOL_RUN = 256  # pixels of a window that are summed in order; of larger ones, rows are summed apart
RESIZE_BITS = 10  # after the point, of weights of s8 and s16

# Convolutions
F32_SEGMENTS = 64  # pointers per pixel at least; the lowering asks for more where windows have more
F32_SCRATCH_BYTES = 65536  # for the rows of windows that cross a border
I8_SEGMENTS = 16  # rows of a window that may be read in place; more are packed
I8_SCRATCH_BYTES = 163840  # for a tile's windows; the lowering picks tiles that fit
I8_KEPT_TILES = 256  # that are found once for all panels
I8_UNPACKED_BYTES = 32768  # of a panel of halved weights; larger panels stay in bytes
MOST_TAPS = 1024  # of a depthwise window
DEPTHWISE_TILE = 4  # columns of y that are made at once
WINOGRAD_CHANNELS = 128  # at most
CHAIN_BYTES = 196608  # of the rows between the members
PLANAR_SCRATCH = 8192  # floats for the input rows of a band, padding included; there are two of it
PLANAR_DIRECT_ROWS = 6  # of outputs that are made at once
PLANAR_ROWS = 4  # the same, of rows that are read where they are
PLANAR_WIDTH = 1024  # of such a row at most

# Detections: bytes of structs
CANDIDATE_BYTES = 12
KEYPOINTS = 17  # of a pose
ROOT_BYTES, POSE_BYTES = 8, 4 * (3 * KEYPOINTS + 2)

# Sparse matrices
SCALAR_LANES = 4  # rows of a strip in plain C: independent sums hide the latency of an addition
STRIP_WINDOW = 128  # columns; the highest bit of a column can mark padding
STRIP_PADDING = 0x80
STRIP_PARTIAL_BYTES = 192  # of scratch per piece: two vectors of sums, and whose they are
SPMM_PANEL = 256  # columns of a panel at most
SPMM_COLUMNS, SPMM_COLUMNS_OF_16 = 192, 96  # that suit a core; one with 16 lanes
SPARSE_WINDOW_SCRATCH = 32768  # floats for a band's input, and for its sums

# Products with outliers
OUTLIER_PADDING = 16  # channels of float parts are whole multiples
OUTLIER_CHANNELS = 32  # that a layer of a model multiplies as floats at once

# What the NNA's patent fixes for every chip
NNA_TAPS = 9  # a window is 3 x 3
NNA_CHANNELS = 32  # of a pixel, one byte each; also input and output channels of a convolution
NNA_FRAMS = 2  # feature RAMs, filled and computed on in turns
NNA_FRAM_ROWS = 3
NNA_REGISTERS = 32  # of 64 bytes: two pixels, or 16 sums
