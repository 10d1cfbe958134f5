"""Operator timestamps are converted without vector instructions, which fail on QEMU 7.2."""

from __future__ import annotations

import subprocess

from edgekit.host.compiler.toolchain.zig import kernels_folder, zig_compiler


def test_stamps_are_not_converted_by_vectors(tmp_path):
    compiler, _ = zig_compiler()
    text = tmp_path / "bench.s"
    flags = ["-target", "riscv64-linux-gnu", "-mcpu=generic_rv64+m+a+f+d+c+v", "-O3", "-S"]
    source = kernels_folder() / "runtime" / "bench.c"
    subprocess.run([compiler, "cc", *flags, source, "-o", text], check=True)
    written = text.read_text()
    assert "ek_stamps_finish" in written and "fcvt.d.lu" in written
    assert "vfcvt" not in written
