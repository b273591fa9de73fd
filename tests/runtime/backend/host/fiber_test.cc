// SPDX-License-Identifier: MIT
#include "deep_jit/backend/host/fiber.hpp"

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deep_jit::host {
namespace {

using ::testing::ElementsAre;

// Two fibers and the test's own stack, which write down where they are.
struct Scene {
  std::vector<std::string> log;
  Fiber here;
  std::unique_ptr<Fiber> first;
  std::unique_ptr<Fiber> second;
};

TEST(Fiber, GoesOnWhereItWasLeft) {
  Scene scene;
  scene.first = std::make_unique<Fiber>(
      [](void* raw) {
        auto& scene = *static_cast<Scene*>(raw);
        for (int i = 0;; ++i) {
          scene.log.push_back("first " + std::to_string(i));
          scene.first->switch_to(*scene.second);
        }
      },
      &scene);
  scene.second = std::make_unique<Fiber>(
      [](void* raw) {
        auto& scene = *static_cast<Scene*>(raw);
        for (int i = 10;; ++i) {
          scene.log.push_back("second " + std::to_string(i));
          scene.second->switch_to(scene.here);
        }
      },
      &scene);
  for (int i = 0; i < 2; ++i) {
    scene.log.push_back("here");
    scene.here.switch_to(*scene.first);
  }
  EXPECT_THAT(scene.log,
              ElementsAre("here", "first 0", "second 10", "here", "first 1", "second 11"));
}

struct Call {
  Fiber here;
  std::unique_ptr<Fiber> fiber;
  std::string result;
};

TEST(Fiber, CarriesExceptionsAndDeepCalls) {
  struct Deep {
    static std::size_t descend(std::size_t depth) {
      volatile char frame[1024] = {};
      frame[depth % sizeof(frame)] = 1;
      return depth == 0 ? 0 : descend(depth - 1) + static_cast<std::size_t>(frame[depth % 1024]);
    }
  };
  Call call;
  call.fiber = std::make_unique<Fiber>(
      [](void* raw) {
        auto& call = *static_cast<Call*>(raw);
        for (;;) {
          try {
            // Half of the stack, more under a sanitizer.
            throw std::runtime_error(std::to_string(Deep::descend(Fiber::kStackBytes / 4096)));
          } catch (const std::exception& error) {
            call.result += error.what();
          }
          call.fiber->switch_to(call.here);
        }
      },
      &call);
  call.here.switch_to(*call.fiber);
  call.here.switch_to(*call.fiber);
  EXPECT_EQ(call.result, "6464");
}

TEST(Fiber, ManyCanBeMadeAndDroppedOnAnyThread) {
  std::vector<std::jthread> threads;
  std::vector<int> sums(4);
  for (int& sum : sums) {
    threads.emplace_back([&sum] {
      for (int i = 0; i < 200; ++i) {
        struct Add {
          Fiber here;
          std::unique_ptr<Fiber> fiber;
          int* sum;
        } add{{}, nullptr, &sum};
        add.fiber = std::make_unique<Fiber>(
            [](void* raw) {
              auto& add = *static_cast<Add*>(raw);
              ++*add.sum;
              add.fiber->switch_to(add.here);
            },
            &add);
        add.here.switch_to(*add.fiber);
      }
    });
  }
  threads.clear();
  EXPECT_THAT(sums, ElementsAre(200, 200, 200, 200));
}

// Not under sanitizers, which report the fault in their own way.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(FiberDeathTest, AnOverflowEndsAtTheGuardPage) {
  EXPECT_DEATH(
      {
        Call call;
        call.fiber = std::make_unique<Fiber>(
            [](void* raw) {
              volatile char big[2 * Fiber::kStackBytes];
              for (std::size_t i = sizeof(big); i > 0; i -= 1024) big[i - 1] = 1;
              static_cast<Call*>(raw)->result = "survived";
              static_cast<Call*>(raw)->fiber->switch_to(static_cast<Call*>(raw)->here);
            },
            &call);
        call.here.switch_to(*call.fiber);
      },
      "");
}
#endif

}  // namespace
}  // namespace deep_jit::host
