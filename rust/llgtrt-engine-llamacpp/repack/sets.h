// The sets of instructions that there are kernels for, and which of them this machine has.
#pragma once

#if defined(__aarch64__)
#    include <sys/auxv.h>
#else
#    include <cpuid.h>
#    if defined(__linux__)
#        include <sys/syscall.h>
#        include <unistd.h>
#    endif
#endif

#include "kernels.h"

namespace llgtrt::repack {
namespace {

struct Set {
    const Kernels & kernels;
    bool (*is_there)();
};

struct AttentionSet {
    const AttentionKernel & kernel;
    bool (*is_there)();
};

#if defined(__aarch64__)

// As Linux says it (asm/hwcap.h).
bool has_dot_products() {
    constexpr unsigned long ASIMDDP = 1UL << 20;
    return (getauxval(AT_HWCAP) & ASIMDDP) != 0;
}

bool has_matrix_products() {
    constexpr unsigned long I8MM = 1UL << 13;
    return has_dot_products() && (getauxval(AT_HWCAP2) & I8MM) != 0;
}

// The fastest one first.
constexpr Set          SETS[]           = {{KERNELS_I8MM, has_matrix_products}, {KERNELS_DOTPROD, has_dot_products}};
constexpr AttentionSet ATTENTION_SETS[] = {{ATTENTION_NEON, [] { return true; }}};

#else

// Whether this process may use AMX with numbers of that kind, from now on.
bool may_use_amx(unsigned numbers) {
#    if defined(__linux__)
    unsigned a, b, c, d;
    constexpr unsigned TILE = 1U << 24;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & TILE) == 0 || (d & numbers) == 0) {
        return false;
    }
    // Linux lets processes that ask use the registers, for the room that they take wherever a thread's are saved.
    constexpr int REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#    else
    return false;
#    endif
}

bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
           __builtin_cpu_supports("bmi2");
}

bool has_avx_vnni() { return has_avx2() && __builtin_cpu_supports("avxvnni"); }

bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd") &&
           __builtin_cpu_supports("avx512vnni");
}

// As CPUID says them.
constexpr unsigned AMX_BF16 = 1U << 22, AMX_INT8 = 1U << 25;

bool has_amx() { return has_avx512() && may_use_amx(AMX_INT8); }

// Where a product of pairs takes as long as one of floats: on AMD's. On an Intel (Emerald Rapids) a prompt took 1.2 times as long so.
bool has_fast_bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_is("amd"); }

bool has_amx_bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16") && may_use_amx(AMX_BF16); }

// The fastest one first.
constexpr Set SETS[] = {
    {KERNELS_AMX, has_amx},
    {KERNELS_AVX512, has_avx512},
    {KERNELS_AVX_VNNI, has_avx_vnni},
    {KERNELS_AVX2, has_avx2},
};
constexpr AttentionSet ATTENTION_SETS[] = {
    {ATTENTION_AMX, has_amx_bf16},
    {ATTENTION_AVX512_BF16, has_fast_bf16},
    {ATTENTION_AVX512, has_avx512},
    {ATTENTION_AVX2, has_avx2},
};

#endif

}  // namespace
}  // namespace llgtrt::repack
