// SPDX-License-Identifier: MIT
//
// The C++ library of GCC 16 uses C++23's explicit object parameters in C++20 too, which CUDA 13.0
// does not know.
#include_next <bits/c++config.h>
#undef _GLIBCXX_EXPLICIT_THIS_PARAMETER
