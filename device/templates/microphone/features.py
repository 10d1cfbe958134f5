"""Audio features for microWakeWord models: 40 numbers for each 10 ms.

A close floating-point approximation of TensorFlow Lite Micro's audio front end at 16 kHz. Uses
NumPy for the Fourier transform if it is installed.

Each frame of 30 ms goes through a Hann window and a Fourier transform; triangular filters on the
mel scale sum its energies to 40 channels; the steady part is subtracted as noise; each channel is
amplified according to how quiet its surroundings are (PCAN); the result is the logarithm.
"""

import array
import cmath
import math
import operator
import sys

try:
    import numpy
except ImportError:
    numpy = None

RATE = 16000
STEP = 160  # samples of 10 ms
CHANNELS = 40
SCALE = 0.0390625  # of the numbers that the models were trained with

FRAME, POINTS = 480, 512
LOWEST, HIGHEST = 125.0, 7500.0  # Hz
EVEN_SMOOTHING, ODD_SMOOTHING = 0.025, 0.06  # of the noise, by channel
ROUNDING = 0.5  # energy per bin added by the front end's integer rounding
LEAST_SIGNAL = 0.05  # minimum fraction of the signal after noise subtraction
GAIN, GAIN_OFFSET, GAIN_STRENGTH, MOST_GAIN = 2.0**21, 80.0, 0.95, 32767.0


def mel(hertz):
    return 1127.0 * math.log1p(hertz / 700.0)


def triangles():
    """Yields each channel's first bin, and the weights of its bins."""
    low, spacing = mel(LOWEST), (mel(HIGHEST) - mel(LOWEST)) / (CHANNELS + 1)
    heights = [(mel(k * RATE / POINTS) - low) / spacing for k in range(POINTS // 2 + 1)]
    for channel in range(CHANNELS):
        shares = [max(0.0, 1.0 - abs(height - channel - 1)) for height in heights]
        bins = [k for k, share in enumerate(shares) if share > 0]
        yield bins[0], shares[bins[0] : bins[-1] + 1]


WINDOW = [round(2048 - 2048 * math.cos(2 * math.pi * (i + 0.5) / FRAME)) for i in range(FRAME)]
TRIANGLES = list(triangles())
TURNS = {
    count: [cmath.exp(-2j * math.pi * k / count) for k in range(count // 2)]
    for count in (8, 16, 32, 64, 128, 256, POINTS)
}


def transform(values):
    """Computes the discrete Fourier transform; the length must be a power of two."""
    if len(values) == 4:
        a, b, c, d = values
        sums, apart = (a + c, b + d), (a - c, 1j * (b - d))
        return [sums[0] + sums[1], apart[0] - apart[1], sums[0] - sums[1], apart[0] + apart[1]]
    even, odd = transform(values[::2]), transform(values[1::2])
    turned = list(map(operator.mul, TURNS[len(values)], odd))
    return [*map(operator.add, even, turned), *map(operator.sub, even, turned)]


def spectrum(values):
    """Computes the lower half of a real transform from a complex one of half the length."""
    found = transform(list(map(complex, values[::2], values[1::2])))
    mirrored = [value.conjugate() for value in [found[0], *found[:0:-1]]]
    rows = zip(found, mirrored, TURNS[POINTS])
    lower = [(a + b) / 2 - 0.5j * turn * (a - b) for a, b, turn in rows]
    return [*lower, complex(found[0].real - found[0].imag)]


def energies(frame):
    """Returns the energy of each channel of a frame, and the left shift applied to the frame: the
    front end normalizes each frame to 16 bits, and drops lower bits."""
    windowed = [sample * share >> 12 for sample, share in zip(frame, WINDOW)]
    shift = 15 - max(map(abs, windowed)).bit_length()
    scale = 2.0**shift / POINTS
    scaled = [scale * value for value in windowed] + [0.0] * (POINTS - FRAME)
    if numpy is not None:
        bins = numpy.fft.rfft(scaled)
        power = (bins.real**2 + bins.imag**2 + ROUNDING).tolist()
    else:
        power = [value.real**2 + value.imag**2 + ROUNDING for value in spectrum(scaled)]
    return shift, [
        sum(map(operator.mul, shares, power[first : first + len(shares)]))
        for first, shares in TRIANGLES
    ]


class Features:
    """Computes features of streamed audio, a row for each `step` samples; the noise estimate
    persists."""

    def __init__(self, step=STEP):
        self.step = step
        self.samples = array.array("h")
        self.noise = [0.0] * CHANNELS

    def of(self, data):
        """Returns the rows of features completed by `data`: 16-bit samples, little-endian."""
        came = array.array("h", data)
        if sys.byteorder == "big":
            came.byteswap()
        self.samples += came
        rows = []
        while len(self.samples) >= FRAME:
            rows.append([SCALE * value for value in self.frame(self.samples[:FRAME])])
            del self.samples[: self.step]
        return rows

    def frame(self, samples):
        """Returns one frame's integer features."""
        row = []
        shift, found = energies(samples)
        for channel, energy in enumerate(found):
            level = int(64 * math.sqrt(energy)) >> shift
            smoothing = ODD_SMOOTHING if channel % 2 else EVEN_SMOOTHING
            noise = self.noise[channel] = self.noise[channel] * (1 - smoothing) + level * smoothing
            signal = math.floor(max(level - noise, level * LEAST_SIGNAL))
            gain = min(GAIN * (8 * noise + GAIN_OFFSET) ** -GAIN_STRENGTH, MOST_GAIN)
            ratio = math.floor(signal * gain / 64)
            amplified = ratio * ratio >> 20 if ratio < 1 << 13 else (ratio >> 6) - 64
            row.append(round(64 * math.log(8 * amplified)) if amplified else 0)
        return row
