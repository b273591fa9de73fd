// SPDX-License-Identifier: MIT
//
// The stand-in for libnvrtc; see fake_nvrtc.hpp.
#include "tests/cuda/fake_nvrtc.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

namespace deep_jit::testing {
namespace {

constexpr int kErrorInvalidOption = 5;
constexpr int kErrorCompilation = 6;
constexpr int kCancelled = 16;

FakeNvrtc& fake() {
  static FakeNvrtc* const nvrtc = new FakeNvrtc();
  return *nvrtc;
}

struct Program {
  FakeNvrtc::Compilation made;
  int (*callback)(void*, void*) = nullptr;
  void* payload = nullptr;
  std::string log;
};

// `text` ends with a NUL there.
int get(const std::string& text, std::size_t terminator, char* to, std::size_t* size) {
  if (size != nullptr) *size = text.size() + terminator;
  if (to != nullptr) std::memcpy(to, text.c_str(), text.size() + terminator);
  return 0;
}

}  // namespace
}  // namespace deep_jit::testing

using namespace deep_jit::testing;  // NOLINT: the entry points are global.

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

FAKE_EXPORT FakeNvrtc* fake_nvrtc() {
  return &fake();
}

FAKE_EXPORT int nvrtcVersion(int* major, int* minor) {
  *major = fake().major;
  *minor = fake().minor;
  return 0;
}

FAKE_EXPORT int nvrtcGetNumSupportedArchs(int* count) {
  *count = static_cast<int>(fake().architectures.size());
  return 0;
}

FAKE_EXPORT int nvrtcGetSupportedArchs(int* archs) {
  std::ranges::copy(fake().architectures, archs);
  return 0;
}

FAKE_EXPORT const char* nvrtcGetErrorString(int result) {
  return result == kErrorCompilation ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR_OTHER";
}

FAKE_EXPORT int nvrtcCreateProgram(Program** program, const char* source, const char* name,
                                   int num_headers, const char* const* headers,
                                   const char* const* include_names) {
  *program = new Program();
  (*program)->made.source = source;
  (*program)->made.name = name;
  for (int i = 0; i < num_headers; ++i) (*program)->made.headers[include_names[i]] = headers[i];
  ++fake().num_programs;
  return 0;
}

FAKE_EXPORT int nvrtcDestroyProgram(Program** program) {
  delete *program;
  *program = nullptr;
  --fake().num_programs;
  return 0;
}

FAKE_EXPORT int nvrtcSetFlowCallback(Program* program, int (*callback)(void*, void*),
                                     void* payload) {
  program->callback = callback;
  program->payload = payload;
  return 0;
}

FAKE_EXPORT int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
  program->made.options.assign(options, options + count);
  fake().compilations.push_back(program->made);
  program->log = fake().log;
  for (int i = 0; i < fake().num_questions; ++i) {
    if (program->callback(program->payload, nullptr) != 0) return kCancelled;
  }
  if (std::ranges::find(program->made.options, "--std=c++98") != program->made.options.end()) {
    program->log = "nvrtc: error: invalid value for --std(-std)\n";
    return kErrorInvalidOption;
  }
  if (program->made.source.find("REJECT") != std::string::npos) {
    program->log = "a remark\n" + program->made.name + "(1): error: REJECT is no type\n";
    return kErrorCompilation;
  }
  return 0;
}

FAKE_EXPORT int nvrtcGetProgramLogSize(Program* program, std::size_t* size) {
  return get(program->log, 1, nullptr, size);
}
FAKE_EXPORT int nvrtcGetProgramLog(Program* program, char* log) {
  return get(program->log, 1, log, nullptr);
}
FAKE_EXPORT int nvrtcGetCUBINSize(Program*, std::size_t* size) {
  return get(fake().cubin, 0, nullptr, size);
}
FAKE_EXPORT int nvrtcGetCUBIN(Program*, char* cubin) {
  return get(fake().cubin, 0, cubin, nullptr);
}
FAKE_EXPORT int nvrtcGetPTXSize(Program*, std::size_t* size) {
  return get(fake().ptx, fake().ptx.empty() ? 0 : 1, nullptr, size);
}
FAKE_EXPORT int nvrtcGetPTX(Program*, char* ptx) {
  return get(fake().ptx, 1, ptx, nullptr);
}
