// The instruction classes that a core's description assigns latencies and units to. Python reads
// this list, too. X(class, like, description): a core without figures for a class uses those of
// `like`. Width, element size and kind of access are in struct ek_insn.
#ifndef EK_CLASSES_H
#define EK_CLASSES_H

// clang-format off
#define EK_CLASSES(X) \
    X(unknown, unknown, "not decoded") \
    /* integers */ \
    X(alu, alu, "add, subtract, logic, compare") \
    X(alu_shift_small, alu_shift, "the same, one operand shifted left by 1 to 4 bits") \
    X(alu_shift, alu, "the same, one operand shifted or extended") \
    X(alu_carry, alu, "add or subtract with carry") \
    X(move, alu, "copy of a register") \
    X(move_imm, alu, "constant, address of a place in the program") \
    X(minmax, alu, "smaller or larger of two") \
    X(shift, alu, "shift or rotation") \
    X(bits, shift, "extract, insert, extend, reverse bits or bytes") \
    X(bits_insert, bits, "bits of one register into another")                                      \
    X(count, bits, "leading or trailing zeros, ones") \
    X(select, alu, "conditional select, conditional compare") \
    X(alu_sat, alu, "saturating or halving; several lanes in an integer register") \
    X(mul, mul, "product of the operands' width, with or without accumulator") \
    X(mul_long, mul, "product twice as wide as its operands") \
    X(mul_high, mul_long, "upper half of a product") \
    X(div, div, "quotient or remainder") \
    X(crc, mul, "CRC-32") \
    /* control */ \
    X(branch, branch, "jump") \
    X(branch_cond, branch, "jump by flags or by a register") \
    X(branch_indirect, branch, "jump to a register") \
    X(call, branch, "call, direct or to a register") \
    X(ret, branch_indirect, "return") \
    X(hint, alu, "nothing that takes a unit") \
    X(barrier, system, "order of memory accesses or instructions") \
    X(system, system, "system registers, calls of the system") \
    /* memory */ \
    X(load, load, "one integer register") \
    X(load_acquire, load, "load that later accesses wait for") \
    X(load_pair, load, "two integer registers") \
    X(load_multiple, load_pair, "more integer registers") \
    X(load_v, load, "one vector or float register") \
    X(load_v_pair, load_v, "two of them") \
    X(load_v_multi, load_v_pair, "consecutive vector registers, not interleaved") \
    X(load_struct, load_v_multi, "vector registers, elements interleaved in memory") \
    X(load_lane, load_v, "one lane of a register or of several") \
    X(load_dup, load_v, "one element to all lanes") \
    X(v_load_strided, load_struct, "elements at a distance") \
    X(v_load_indexed, v_load_strided, "elements at a vector's addresses") \
    X(store, store, "one integer register") \
    X(store_release, store, "store that waits for accesses before it") \
    X(store_pair, store, "two integer registers") \
    X(store_multiple, store_pair, "more integer registers") \
    X(store_v, store, "one vector or float register") \
    X(store_v_pair, store_v, "two of them") \
    X(store_v_multi, store_v_pair, "consecutive vector registers, not interleaved") \
    X(store_struct, store_v_multi, "vector registers, elements interleaved in memory") \
    X(store_lane, store_v, "one lane of a register or of several") \
    X(v_store_strided, store_struct, "elements at a distance") \
    X(v_store_indexed, v_store_strided, "elements at a vector's addresses") \
    X(store_zero, store, "a line of the cache becomes zeros") \
    X(prefetch, load, "hint that memory will be read or written") \
    X(exclusive, load, "load or store of a pair that must not be interrupted") \
    X(atomic, exclusive, "read, change, write at once") \
    /* scalar floats */ \
    X(f_add, f_add, "sum or difference") \
    X(f_mul, f_mul, "product") \
    X(f_fma, f_fma, "product and sum, rounded once") \
    X(f_mla, f_fma, "product and sum, rounded twice (VFP)") \
    X(f_div, f_div, "quotient") \
    X(f_sqrt, f_div, "root") \
    X(f_compare, f_add, "comparison, classification") \
    X(f_minmax, f_add, "smaller or larger of two") \
    X(f_convert, f_add, "between float types, rounding to integral values") \
    X(f_move, f_move, "copy, sign, constant") \
    X(f_select, f_move, "conditional select") \
    X(f_to_int, f_to_int, "copy to an integer register") \
    X(int_to_f, int_to_f, "copy from an integer register") \
    X(f_convert_to_int, f_to_int, "conversion into an integer register") \
    X(f_convert_from_int, int_to_f, "conversion from an integer register") \
    /* vectors of integers */ \
    X(v_alu, v_alu, "add, subtract, negate, absolute value") \
    X(v_alu_sat, v_alu, "saturating, halving, rounding") \
    X(v_alu_long, v_alu, "sum or difference wider than its operands") \
    X(v_logic, v_alu, "bitwise") \
    X(v_minmax, v_alu, "smaller or larger of two") \
    X(v_abs_diff, v_alu, "absolute difference") \
    X(v_abs_diff_acc, v_shift_acc, "absolute difference, accumulated") \
    X(v_compare, v_alu, "comparison") \
    X(v_count, v_alu, "bits counted or reversed") \
    X(v_shift, v_alu, "shift; shift and insert") \
    X(v_shift_sat, v_shift, "shift that saturates or rounds") \
    X(v_shift_acc, v_shift, "shift, accumulated") \
    X(v_extend, v_shift, "elements made wider, shifted or not") \
    X(v_narrow, v_shift, "elements made narrower, shifted or not") \
    X(v_mul, v_mul, "product") \
    X(v_mul_sat, v_mul, "doubling or rounding upper half of a product") \
    X(v_mul_long, v_mul, "product twice as wide") \
    X(v_mul_poly, v_mul, "polynomials over bits") \
    X(v_mla, v_mul, "product, accumulated") \
    X(v_mla_sat, v_mla, "upper half of a product, accumulated") \
    X(v_mla_long, v_mla, "product twice as wide, accumulated") \
    X(v_div, v_div, "quotient or remainder") \
    X(v_dot, v_mla, "dot products of four bytes or two halves, accumulated") \
    X(v_mmla, v_dot, "products of small matrices, accumulated") \
    X(v_pair_add, v_alu, "sum of neighbors") \
    X(v_pair_acc, v_shift_acc, "sum of neighbors, accumulated") \
    X(v_reduce, v_pair_add, "one value of all elements") \
    /* vectors of floats */ \
    X(v_fadd, v_fadd, "sum, difference, absolute difference") \
    X(v_fpair, v_fadd, "sum, smaller or larger of neighbors") \
    X(v_fmul, v_fmul, "product") \
    X(v_fma, v_fma, "product and sum, rounded once") \
    X(v_fmla, v_fma, "product and sum, rounded twice (A32)") \
    X(v_fma_long, v_fma, "product and sum, wider than the operands") \
    X(v_fdiv, v_fdiv, "quotient") \
    X(v_fsqrt, v_fdiv, "root") \
    X(v_festimate, v_fmul, "estimate of a reciprocal or of a root's") \
    X(v_festep, v_fma, "step that makes an estimate better") \
    X(v_fcompare, v_fadd, "comparison, classification") \
    X(v_fminmax, v_fadd, "smaller or larger of two") \
    X(v_fconvert, v_fadd, "to or from integers, same width") \
    X(v_fconvert_size, v_fconvert, "between widths") \
    X(v_fround, v_fconvert, "to integral values") \
    X(v_fsign, v_logic, "absolute value, negation, copied sign") \
    X(v_freduce, v_fpair, "one float of all elements") \
    X(v_freduce_ordered, v_freduce, "the same, in the elements' order") \
    /* elements */ \
    X(v_move, v_logic, "copy of a register") \
    X(v_move_imm, v_logic, "constant") \
    X(v_select, v_logic, "bitwise select, merge") \
    X(v_permute, v_alu, "zip, transpose, reverse, extract from two") \
    X(v_table, v_permute, "bytes looked up in registers") \
    X(v_dup, v_permute, "one element to all lanes") \
    X(v_dup_int, int_to_f, "an integer register to all lanes") \
    X(v_insert, v_permute, "one element to one lane") \
    X(v_insert_int, v_dup_int, "an integer register to one lane") \
    X(v_to_int, f_to_int, "one lane to an integer register") \
    X(v_slide, v_permute, "elements moved up or down") \
    X(v_gather, v_permute, "elements by a vector of indices") \
    X(v_compress, v_gather, "elements that a mask names, packed") \
    X(v_mask, v_logic, "masks: logic, counting, first of, indices") \
    X(v_setvl, alu, "length and type of vectors") \
    /* cryptography */ \
    X(v_aes, v_alu, "AES, SM4") \
    X(v_sha, v_alu, "SHA, SM3")
// clang-format on

#define EK_CLASS_ENUM(name, like, text) EK_CLASS_##name,
enum ek_class { EK_CLASSES(EK_CLASS_ENUM) EK_CLASS_COUNT };
#undef EK_CLASS_ENUM

// Features that instructions need beyond the base instruction set (A64 of Armv8.0, Armv7-A without
// VFP, RV64I), named as in Linux's /proc/cpuinfo or the RISC-V manuals.
// clang-format off
#define EK_FEATURES(X) \
    X(base) \
    /* A64 */ \
    X(asimdhp) X(asimddp) X(i8mm) X(bf16) X(asimdfhm) X(asimdrdm) X(fcma) X(jscvt) X(atomics) \
    X(lrcpc) X(ilrcpc) X(crc32) X(aes) X(pmull) X(sha1) X(sha2) X(sha3) X(sha512) X(sm3) X(sm4) \
    X(paca) X(flagm) X(flagm2) X(frint) X(sb) X(mte) X(sve) \
    /* A32, T32 */ \
    X(vfp) X(neon) X(vfpv4) X(idiv) X(v8) \
    /* RV64 */ \
    X(m) X(a) X(f) X(d) X(c) X(zfh) X(zfhmin) X(zba) X(zbb) X(zbs) X(zbc) X(zicond) X(zicbom) \
    X(zicbop) X(zicboz) X(v) X(zvfh) X(zvbb) X(xsmtvdot)
// clang-format on

#define EK_FEATURE_ENUM(name) EK_FEATURE_##name,
enum ek_feature { EK_FEATURES(EK_FEATURE_ENUM) EK_FEATURE_COUNT };
#undef EK_FEATURE_ENUM

#endif
