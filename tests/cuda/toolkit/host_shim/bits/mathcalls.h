// SPDX-License-Identifier: MIT
//
// glibc 2.43 declares rsqrt(), which CUDA 13.0 declares too, with another exception specification.
// For such a pair: glibc's function under another name, which nothing calls.
#define rsqrt __glibc_rsqrt
#define __DECL_SIMD___glibc_rsqrt
#define __DECL_SIMD___glibc_rsqrtf
#define __DECL_SIMD___glibc_rsqrtl
#define __DECL_SIMD___glibc_rsqrtf16
#define __DECL_SIMD___glibc_rsqrtf32
#define __DECL_SIMD___glibc_rsqrtf64
#define __DECL_SIMD___glibc_rsqrtf128
#define __DECL_SIMD___glibc_rsqrtf32x
#define __DECL_SIMD___glibc_rsqrtf64x
#include_next <bits/mathcalls.h>
#undef rsqrt
