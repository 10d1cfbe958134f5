"""Constants shared by the C kernels and their Python callers, defined only here.

The compiler defines each as a macro EK_<NAME> (`-D`) for every C file; no file of device/kernels
defines one.
"""

from __future__ import annotations

# Operators on complete tensors
UNARY_CHUNK = 2048  # elements per task
BINARY_CHUNK = MAP_CHUNK = 4096  # elements of the innermost dimension per task
LINEAR_SUM_CHUNK = 4096  # elements per task
LINEAR_SUM_BITS = 15  # lower part of a factor and of the addend
LINEAR_SUM_WIDENING = 7  # with 16 lanes at a time, quantized values are scaled by 1 << this
LINEAR_SUM_FRACTION = 2  # fractional bits of their 16-bit sum
BINARY_DIMS = 4  # of a collapsed broadcast
MAP_DIMS = 6
MATMUL_DIMS = 4  # of a stack of matrices
PACKED_ROWS = 128  # per task of a packed product
PACKED_DEPTH = 256  # of k packed at a time
HALF_SUMS = 128  # products per f16 partial sum, in products of two computed matrices
HALF_RUN = 64  # the same in long products with weights, whose partial sums are added in f16
ATTENTION_ROWS = 16  # queries that share keys and values, per task
COPY_DIMS = 6
TRANSPOSE_TILE = 256  # rows and columns per task
REDUCE_BLOCK = 64  # results that a task keeps at once
POOL_RUN = 256  # pixels of a window summed in order; rows of larger windows are summed separately
RESIZE_BITS = 10  # fractional bits of s8 and s16 weights
ROI_SAMPLES = 1 << 20  # at most, along an axis of a bin

# Convolutions
F32_SEGMENTS = 64  # minimum of pointers per pixel; the lowering requests more for larger windows
READ_AHEAD_TOUCHED = 2048  # bytes before prefetched weights of a later call, which are loaded
F32_SCRATCH_BYTES = 65536  # for the rows of windows that cross a border
F32_UNPACKED_BYTES = 393216  # of widened weights; a larger panel is stored as f32
I8_SEGMENTS = 16  # rows of a window that may be read in place; larger windows are packed
I8_SCRATCH_BYTES = 163840  # for a tile's windows; the lowering picks tiles that fit
I8_KEPT_TILES = 256  # located once for all panels
I8_UNPACKED_BYTES = 32768  # of a panel of 4-bit weights; larger panels are stored as bytes
MOST_TAPS = 1024  # of a depthwise window
DEPTHWISE_TILE = 4  # columns of y computed at once
DEPTHWISE_BLOCKS_TILE = 2  # the same for DEPTHWISE_BLOCKS channel blocks at once
DEPTHWISE_BLOCKS = 4
WINOGRAD_BYTES = 8192  # of tiles that are multiplied at once, at each of 36 points
WINOGRAD_FAR_BYTES = 262144  # of weights that several groups of tiles share, panel by panel
WINOGRAD_FLOAT_CHANNELS = 128  # products that are summed in f32 before these sums are added
WINOGRAD_HALF_CHANNELS = 32  # the same in f16
CHAIN_BYTES = 196608  # of the rows between the members
DWCONV_CHW_SCRATCH = 8192  # floats for a band's input rows, including padding; there are two
DWCONV_CHW_DIRECT_ROWS = 6  # output rows computed at once
DWCONV_CHW_ROWS = 4  # the same, for input rows read in place
DWCONV_CHW_WIDTH = 1024  # maximum length of such a row

# Detections: struct sizes in bytes
CANDIDATE_BYTES = 12
KEYPOINTS = 17  # of a pose
ROOT_BYTES, POSE_BYTES = 8, 4 * (3 * KEYPOINTS + 2)

# Sparse matrices
SCALAR_LANES = 4  # rows of a strip in plain C: independent sums hide the latency of an addition
STRIP_WINDOW = 128  # columns; the highest bit of a column can mark padding
STRIP_PADDING = 0x80
STRIP_PARTIAL_BYTES = 192  # of scratch per piece: two vectors of sums, and their owners
SPMM_PANEL = 256  # maximum columns of a panel
SPMM_COLUMNS, SPMM_COLUMNS_OF_16 = 192, 96  # best panel width of a core; of one with 16 lanes
SPARSE_WINDOW_SCRATCH = 32768  # floats for a band's input, and for its sums
SPARSE_I8_COPIES = 32768  # bytes of copied windows of 8-bit images

# Products with outliers
OUTLIER_PADDING = 16  # float parts are padded to a multiple of this many channels
OUTLIER_CHANNELS = 32  # that a model's layer multiplies as floats at once

# Fixed by the NNA's patent for every chip
NNA_TAPS = 9  # a window is 3 x 3
NNA_CHANNELS = 32  # of a pixel, one byte each; also input and output channels of a convolution
NNA_FRAMS = 2  # feature RAMs, alternately filled and computed on
NNA_FRAM_ROWS = 3
NNA_REGISTERS = 32  # of 64 bytes: two pixels, or 16 sums
