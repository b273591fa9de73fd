// SPDX-License-Identifier: MIT
//
// FakeNvrtc: what the stand-in for libnvrtc has been told and has seen.
//
// What: a real shared library with NVRTC's interface. A source that holds the word REJECT is
// rejected with the line that holds it; all else gives the cubin and the log that are set here.
// When not: it compiles nothing; what NVRTC accepts is seen with the real one.
//
// Errors: as NVRTC, by result. Thread-safety: for one thread at a time.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace deep_jit::testing {

struct FakeNvrtc {
  int major = 13;
  int minor = 0;
  std::vector<int> architectures = {80, 90, 100};
  std::string cubin = "a cubin of NVRTC";
  std::string ptx = "PTX of NVRTC";
  std::string log;
  int num_questions = 0;  // How often the flow callback is asked while it compiles.

  struct Compilation {
    std::string source;
    std::string name;
    std::vector<std::string> options;
    std::map<std::string, std::string> headers;
  };
  std::vector<Compilation> compilations;
  int num_programs = 0;  // Created and not destroyed.

  void reset() { *this = FakeNvrtc(); }
};

using FakeGetNvrtc = FakeNvrtc*();

}  // namespace deep_jit::testing
