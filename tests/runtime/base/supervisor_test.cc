// SPDX-License-Identifier: MIT
#include "deep_jit/base/supervisor.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "deep_jit/base/file_descriptor.hpp"

namespace deep_jit::detail {
namespace {

// The pieces that a Supervisor needs, with /dev/null on all sides.
struct Fixture {
  explicit Fixture(std::vector<std::string> texts) : arguments(std::move(texts)) {
    for (std::string& argument : arguments) {
      pointers.push_back(argument.data());
    }
    pointers.push_back(nullptr);
    program = {.path = pointers[0],
               .arguments = pointers.data(),
               .environment = environ,
               .working_directory = nullptr,
               .input_fd = null.get(),
               .output_fd = null.get()};
  }
  void wait_until_ended() const {
    pollfd event{.fd = ended.get(), .events = POLLIN, .revents = 0};
    while (::poll(&event, 1, -1) < 0 and errno == EINTR) {
    }
  }

  std::vector<std::string> arguments;
  std::vector<char*> pointers;
  FileDescriptor null = open_file(AT_FDCWD, "/dev/null", O_RDWR);
  FileDescriptor ended{::eventfd(0, EFD_CLOEXEC)};
  Supervisor::Program program;
};

TEST(SupervisorTest, TellsHowTheProgramEnded) {
  Fixture fixture({"/bin/sh", "-c", "exit 9"});
  Supervisor supervisor(fixture.program, fixture.ended.get());
  fixture.wait_until_ended();
  EXPECT_TRUE(supervisor.has_started());
  supervisor.join();
  EXPECT_EQ(supervisor.failed_step(), Supervisor::Step::kNone);
  EXPECT_EQ(supervisor.exit_code(), 9);
}

TEST(SupervisorTest, TellsWhatCouldNotBeDone) {
  Fixture missing({"/no/such/program"});
  Supervisor first(missing.program, missing.ended.get());
  missing.wait_until_ended();
  first.join();
  EXPECT_EQ(first.failed_step(), Supervisor::Step::kExec);
  EXPECT_EQ(first.error_number(), ENOENT);
  EXPECT_FALSE(first.hold());

  Fixture nowhere({"/bin/sh", "-c", "exit 0"});
  nowhere.program.working_directory = "/dev/null";
  Supervisor second(nowhere.program, nowhere.ended.get());
  second.join();
  EXPECT_EQ(second.failed_step(), Supervisor::Step::kDirectory);
  EXPECT_EQ(second.error_number(), ENOTDIR);
}

TEST(SupervisorTest, HeldProgramIsNotReapedUntilReleased) {
  Fixture fixture({"/bin/sh", "-c", "sleep 1000"});
  Supervisor supervisor(fixture.program, fixture.ended.get());
  while (not supervisor.has_started()) {
  }
  ASSERT_TRUE(supervisor.hold());
  EXPECT_FALSE(supervisor.hold());  // one holder
  supervisor.kill_group(SIGTERM);
  fixture.wait_until_ended();
  supervisor.kill_group(SIGKILL);  // a zombie now, so this cannot hit anyone else
  supervisor.release();
  supervisor.join();
  EXPECT_EQ(supervisor.exit_code(), 128 + SIGTERM);
  EXPECT_FALSE(supervisor.hold());
}

}  // namespace
}  // namespace deep_jit::detail
