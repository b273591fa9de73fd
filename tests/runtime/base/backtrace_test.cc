// SPDX-License-Identifier: MIT
#include "deep_jit/base/backtrace.hpp"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "deep_jit/base/exception.hpp"

// Exported, as the functions of a kernel library are: named without debug information.
#define DJ_EXPORTED __attribute__((noinline, visibility("default")))

namespace traced {

DJ_EXPORTED std::string innermost(int depth) {
  if (depth == 0) {
    try {
      DJ_PANIC("failed at depth {}", depth);
    } catch (const deep_jit::exception::Exception& error) {
      EXPECT_EQ(error.error, "failed at depth 0");  // without the trace
      return error.message;
    }
  }
  const std::string text = innermost(depth - 1);
  return text + "";  // no tail call
}

DJ_EXPORTED std::string outermost() {
  const std::string text = innermost(2);
  return text + "";
}

DJ_EXPORTED std::string deep(int depth) {
  const std::string text = depth == 0 ? deep_jit::exception::trace_text() : deep(depth - 1);
  return text + "";
}

}  // namespace traced

namespace deep_jit::exception {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class BacktraceTest : public ::testing::Test {
 protected:
  ~BacktraceTest() override { enable_traces(false); }
};

TEST_F(BacktraceTest, IsOffUntilAskedFor) {
  EXPECT_EQ(trace_text(), "");
  EXPECT_THAT(traced::outermost(), EndsWith(": failed at depth 0"));
  EXPECT_FALSE(enable_traces(true));
  EXPECT_TRUE(enable_traces(false));
  EXPECT_THAT(traced::outermost(), Not(HasSubstr("C++ trace")));
}

TEST_F(BacktraceTest, FollowsTheMessage) {
  enable_traces(true);
  const std::string text = traced::outermost();
  EXPECT_THAT(text, AllOf(HasSubstr(": failed at depth 0\nC++ trace (most recent call first):\n"),
                          ContainsRegex("\n  #0 [^ \n]+\\+0x[0-9a-f]+"), HasSubstr("\n  #3 ")));
  EXPECT_THAT(text, Not(HasSubstr("exception::Exception")));
}

TEST_F(BacktraceTest, NamesFunctionsAndLines) {
  enable_traces(true);
  const std::string text = traced::outermost();
  void* const libdw = ::dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
  if (libdw == nullptr) {
    // An executable exports no functions unless told to: this one's are known to libdw only.
    GTEST_SKIP() << "no libdw.so.1 (elfutils) here";
  }
  ::dlclose(libdw);
  EXPECT_THAT(text, ContainsRegex("#0 [^\n]*traced::innermost\\(int\\)"));
  EXPECT_THAT(text, ContainsRegex("#3 [^\n]*traced::outermost"));
}

TEST_F(BacktraceTest, DeepStacksAreCut) {
  enable_traces(true);
  const std::string text = traced::deep(200);
  EXPECT_THAT(text, AllOf(HasSubstr("\n  #15 "), Not(HasSubstr("\n  #16 "))));
}

TEST_F(BacktraceTest, ManyThreadsAtOnce) {
  enable_traces(true);
  std::vector<std::thread> threads;
  std::vector<std::string> texts(8);
  for (std::string& text : texts) {
    threads.emplace_back([&text] { text = traced::outermost(); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::string& text : texts) {
    EXPECT_THAT(text, HasSubstr("\n  #3 "));
  }
}

TEST_F(BacktraceTest, KnowsPythonFrames) {
  const auto is_python = [](const char* file, const char* symbol) {
    Dl_info info{};
    info.dli_fname = file;
    info.dli_sname = symbol;
    return detail::is_python_frame(info);
  };
  EXPECT_TRUE(is_python("/usr/lib/libpython3.12.so.1.0", nullptr));
  EXPECT_TRUE(is_python("/usr/bin/python3.12", nullptr));
  EXPECT_TRUE(is_python("/opt/app", "_PyEval_EvalFrameDefault"));
  EXPECT_TRUE(is_python("/opt/app", "PyObject_Call"));
  EXPECT_FALSE(is_python("/opt/python/mylib.so", "launch"));
  EXPECT_FALSE(is_python(nullptr, nullptr));
}

}  // namespace
}  // namespace deep_jit::exception
