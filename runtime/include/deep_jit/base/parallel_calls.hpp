// SPDX-License-Identifier: MIT
//
// Calls that run side by side, in threads that live as long as the batch.
//
// What: runs call(0) ... call(count - 1) in a few threads, waits for all of them, and reports what
// each one threw. A failure does not keep the others from running.
// When not: kernels are launched on the thread pool of their backend; this is for work that takes
// longer than starting a thread, such as compilers.
//
// Example:
//     const auto errors = call_in_parallel(sources.size(), 4, [&](std::size_t i) {
//       kernels[i] = runtime.compile(names[i], sources[i]);
//     });
//
// Errors: what calls throw is returned, one place per call, null where it returned. Interrupted
// when the interrupt check of the calling thread says so: running calls are cancelled through
// interrupt checks of their own, no further one is started, and all threads have ended. An error of
// starting threads only when not even one can be started.
// Thread-safety: calls run at the same time and must allow it. The calling thread only waits: its
// interrupt check goes on being asked while all others work.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "deep_jit/base/interrupt.hpp"

namespace deep_jit {

template <class Call>
std::vector<std::exception_ptr> call_in_parallel(std::size_t count, std::size_t num_threads,
                                                 const Call& call);

// --- Inline implementations ---

namespace detail {

// The threads of one batch. Ending it early cancels what runs.
class ParallelBatch {
 public:
  ParallelBatch() = default;
  ParallelBatch(const ParallelBatch&) = delete;
  ParallelBatch& operator=(const ParallelBatch&) = delete;
  ~ParallelBatch() {
    is_cancelled_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

  // Starts up to `num_threads` threads that each run `work(cancelled)`.
  template <class Work>
  void start(std::size_t num_threads, const Work& work) {
    threads_.reserve(num_threads);
    while (threads_.size() < num_threads) {
      try {
        threads_.emplace_back([this, &work] {
          work(is_cancelled_);
          {
            std::lock_guard lock(mutex_);
            ++num_ended_;
          }
          ended_.notify_one();
        });
      } catch (const std::system_error&) {
        if (threads_.empty()) throw;
        return;  // the machine has no room for more: fewer threads do all of it
      }
    }
  }

  // Waits for all threads; asks the interrupt check of the calling thread meanwhile.
  void wait() {
    constexpr auto kInterruptPeriod = std::chrono::milliseconds(50);
    std::unique_lock lock(mutex_);
    const auto is_done = [this] { return num_ended_ == threads_.size(); };
    while (not ended_.wait_for(lock, kInterruptPeriod, is_done)) {
      lock.unlock();  // the check may run anything
      throw_if_interrupted();
      lock.lock();
    }
  }

 private:
  std::atomic<bool> is_cancelled_ = false;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t num_ended_ = 0;
};

}  // namespace detail

template <class Call>
std::vector<std::exception_ptr> call_in_parallel(std::size_t count, std::size_t num_threads,
                                                 const Call& call) {
  std::vector<std::exception_ptr> errors(count);
  std::atomic<std::size_t> next = 0;
  const auto work = [&](const std::atomic<bool>& is_cancelled) {
    const InterruptScope scope([&] { return is_cancelled.load(); });
    for (std::size_t i = next++; i < count and not is_cancelled; i = next++) {
      try {
        call(i);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  detail::ParallelBatch batch;  // after what its threads use
  batch.start(std::clamp<std::size_t>(num_threads, 1, std::max<std::size_t>(count, 1)), work);
  batch.wait();
  return errors;
}

}  // namespace deep_jit
