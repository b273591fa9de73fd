// SPDX-License-Identifier: MIT
//
// The C structs through which a compiled Host kernel describes itself to the program that loads it.
//
// What: a kernel.so exports one function, `deep_jit_host_module`, that gives a Module: magic,
// version, and the list of its kernels. The same tokens are compiled here and, as text, into the
// kernel (prelude.hpp), so that the two sides cannot drift apart. Plain C only: the kernel may be
// built with another compiler and another C++ library than the program.
// When not: nobody but kernel.hpp and prelude.hpp needs this.
//
// Example:
//     auto* module = library.symbol<const abi::Module*()>(abi::kModuleSymbol)();
//     if (module->magic == abi::kMagic && module->version == abi::kVersion) ...
//
// Grammar (every integer in the machine's byte order):
//   Module = magic u32, version u32, first Kernel pointer
//   Kernel = next Kernel pointer, name, parameter count u32, parameters, run_block
//   run_block(args, block, grid, block_dim, error, error_size): runs all threads of one block;
//   0 = done, 1 = the kernel threw and `error` holds the text, cut to error_size with its zero.
// History: 1 = as above.
// Errors: none. Thread-safety: constant data.
#pragma once

#include <cstdint>
#include <string_view>

#define DJ_HOST_STRINGIFY_(...) #__VA_ARGS__
#define DJ_HOST_STRINGIFY(...) DJ_HOST_STRINGIFY_(__VA_ARGS__)

// Kinds: what a parameter is, so that a dynamic language can convert for it. For a pointer the
// element_* fields tell what it points to (kind 0 and size 0 when that is void or incomplete).
#define DJ_HOST_ABI_STRUCTS                                                              \
  enum Kind : uint32_t {                                                                 \
    kUnknown = 0,                                                                        \
    kPointer = 1,                                                                        \
    kBool = 2,                                                                           \
    kSigned = 3,                                                                         \
    kUnsigned = 4,                                                                       \
    kFloat = 5,                                                                          \
    kStruct = 6                                                                          \
  };                                                                                     \
  struct Parameter {                                                                     \
    uint32_t kind;                                                                       \
    uint32_t alignment;                                                                  \
    uint64_t size;                                                                       \
    uint32_t element_kind;                                                               \
    uint32_t element_is_const;                                                           \
    uint64_t element_size;                                                               \
  };                                                                                     \
  struct Kernel {                                                                        \
    const Kernel* next;                                                                  \
    const char* name;                                                                    \
    uint32_t parameter_count;                                                            \
    const Parameter* parameters;                                                         \
    int32_t (*run_block)(void* const* args, const uint32_t* block, const uint32_t* grid, \
                         const uint32_t* block_dim, char* error, uint64_t error_size);   \
  };                                                                                     \
  struct Module {                                                                        \
    uint32_t magic;                                                                      \
    uint32_t version;                                                                    \
    const Kernel* first;                                                                 \
  };                                                                                     \
  inline constexpr uint32_t kMagic = 0x484a4444; /* "DDJH" */                            \
  inline constexpr uint32_t kVersion = 1;

namespace deep_jit::host {

// The file of an entry that holds the module.
inline constexpr std::string_view kArtifactFileName = "kernel.so";

namespace abi {

using std::int32_t;
using std::uint32_t;
using std::uint64_t;

DJ_HOST_ABI_STRUCTS

inline constexpr std::string_view kStructsText = DJ_HOST_STRINGIFY(DJ_HOST_ABI_STRUCTS);
inline constexpr const char* kModuleSymbol = "deep_jit_host_module";

}  // namespace abi

}  // namespace deep_jit::host
