// SPDX-License-Identifier: MIT
#include <cmath>
#include <format>
#include <stdexcept>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace {

TEST(CcToolchain, ExceptionsThreadsAndFormatWork) {
  std::string text;
  std::thread worker([&] {
    try {
      throw std::runtime_error(std::format("{:a}", std::ldexp(1.0, -3)));
    } catch (const std::exception& error) {
      text = error.what();
    }
  });
  worker.join();
  EXPECT_EQ(text, "1p-3");
}

}  // namespace
