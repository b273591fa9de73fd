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
//   Kernel = next Kernel pointer, name, parameter count u32, parameters, run_threads
//   Block = one running block; the program fills it in, with zeros in next, is_started and the
//   votes. run_threads(block): on the block's first call runs its threads in order; on later ones,
//   those from `next` on. 0 = no thread is left to start; 1 = the kernel threw and `error` holds
//   the text, cut to error_size with its zero; 2 = it was told by `wait` that the block has ended.
//   wait(block, scope, vote): a thread is at a barrier. The program runs other threads meanwhile,
//   each in a run_threads of its own. 0 = all have arrived, and votes and votes_true tell how many
//   and how many with a vote; 1 = the block has ended, unwind.
// History: 1 = blocks without barriers (run_block); 2 = as above.
// Errors: none. Thread-safety: constant data.
#pragma once

#include <cstdint>
#include <string_view>

#define DJ_HOST_STRINGIFY_(...) #__VA_ARGS__
#define DJ_HOST_STRINGIFY(...) DJ_HOST_STRINGIFY_(__VA_ARGS__)

// Kinds: what a parameter is, so that a dynamic language can convert for it. For a pointer the
// element_* fields tell what it points to (kind 0 and size 0 when that is void or incomplete).
#define DJ_HOST_ABI_STRUCTS                                                                  \
  enum Kind : uint32_t {                                                                     \
    kUnknown = 0,                                                                            \
    kPointer = 1,                                                                            \
    kBool = 2,                                                                               \
    kSigned = 3,                                                                             \
    kUnsigned = 4,                                                                           \
    kFloat = 5,                                                                              \
    kStruct = 6                                                                              \
  };                                                                                         \
  struct Parameter {                                                                         \
    uint32_t kind;                                                                           \
    uint32_t alignment;                                                                      \
    uint64_t size;                                                                           \
    uint32_t element_kind;                                                                   \
    uint32_t element_is_const;                                                               \
    uint64_t element_size;                                                                   \
  };                                                                                         \
  enum Scope : uint32_t { kWarpScope = 0, kBlockScope = 1 };                                 \
  struct Block {                                                                             \
    void* const* args;                                                                       \
    uint32_t index[3];                                                                       \
    uint32_t grid[3];                                                                        \
    uint32_t dim[3];                                                                         \
    uint32_t next[3];    /* Thread to start next; next[2] == dim[2] when all are started. */ \
    uint32_t is_started; /* Set by the first run_threads. */                                 \
    uint32_t votes;                                                                          \
    uint32_t votes_true;                                                                     \
    uint32_t reserved;                                                                       \
    void* shared_memory; /* The same for all blocks that an OS thread runs. */               \
    char* error;                                                                             \
    uint64_t error_size;                                                                     \
    int32_t (*wait)(Block * block, uint32_t scope, uint32_t vote);                           \
    void* owner; /* The program's. */                                                        \
  };                                                                                         \
  struct Kernel {                                                                            \
    const Kernel* next;                                                                      \
    const char* name;                                                                        \
    uint32_t parameter_count;                                                                \
    const Parameter* parameters;                                                             \
    int32_t (*run_threads)(Block * block);                                                   \
  };                                                                                         \
  struct Module {                                                                            \
    uint32_t magic;                                                                          \
    uint32_t version;                                                                        \
    const Kernel* first;                                                                     \
  };                                                                                         \
  inline constexpr uint32_t kMagic = 0x484a4444; /* "DDJH" */                                \
  inline constexpr uint32_t kVersion = 2;

namespace deep_jit::host {

// The file of an entry that holds the module.
inline constexpr std::string_view kArtifactFileName = "kernel.so";

// The sanitizers that it was built with, one per line; only in entries that have some.
inline constexpr std::string_view kSanitizersFileName = "sanitizers";

namespace abi {

using std::int32_t;
using std::uint32_t;
using std::uint64_t;

DJ_HOST_ABI_STRUCTS

inline constexpr std::string_view kStructsText = DJ_HOST_STRINGIFY(DJ_HOST_ABI_STRUCTS);
inline constexpr const char* kModuleSymbol = "deep_jit_host_module";

}  // namespace abi

}  // namespace deep_jit::host
