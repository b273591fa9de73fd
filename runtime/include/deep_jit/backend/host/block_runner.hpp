// SPDX-License-Identifier: MIT
//
// host::BlockRunner: runs the threads of one block, on one operating system thread.
//
// What: a block starts as a plain loop over its threads, inside the kernel. When a thread comes to
// a barrier, the others go on on fibers until each is at a barrier or done; then the barrier opens.
// A kernel without barriers never pays for them. The rules:
// - A thread that has returned does not count: a barrier opens when all others have arrived.
// - The barrier of a warp opens when nothing else in the block can run, before the one of the
//   block does; it is never weaker than CUDA's.
// - When a thread throws, its block ends: no thread is started any more, and those that wait
//   unwind.
// When not: blocks are independent of each other; kernel.hpp spreads them over threads.
//
// Example:
//     BlockRunner runner(kernel, block);
//     if (!runner.run()) report(block.error);
//
// Errors: what the kernel threw, or that there was no memory for stacks, is text in block.error.
// Thread-safety: run() uses the calling thread only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "deep_jit/backend/host/fiber.hpp"
#include "deep_jit/backend/host/kernel_abi.hpp"

namespace deep_jit::host {

class BlockRunner {
 public:
  // `block` as kernel_abi.hpp wants it, with room for an error; wait and owner are set here.
  BlockRunner(const abi::Kernel& kernel, abi::Block& block);
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  // False when the block ended early; block.error tells why.
  bool run() noexcept;

 private:
  // A fiber that runs threads of blocks, one block after the other.
  struct Strand {
    BlockRunner* runner = nullptr;  // Whose threads it runs now.
    Fiber fiber{&Strand::serve, this};

    static void serve(void* strand);
  };

  // They cost much to make and little to keep, but not so little that a thread should keep all that
  // its largest block has needed.
  static constexpr std::size_t kMaxIdleStrands = 256;

  // The strands of this operating system thread that have nothing to do.
  static std::vector<std::unique_ptr<Strand>>& idle_strands();

  static int32_t wait(abi::Block* block, uint32_t scope, uint32_t vote) noexcept;
  int32_t wait_at(uint32_t scope, bool vote);
  bool has_unstarted() const { return block_.next[2] < block_.dim[2]; }
  Fiber& next();
  void resume(Fiber& fiber);
  Fiber& start_strand();
  void take_result(int32_t result);
  void end(std::string_view error);

  const abi::Kernel& kernel_;
  abi::Block& block_;
  Fiber native_;  // The stack that run() was called on.
  Fiber* current_ = &native_;
  std::vector<Fiber*> ready_;  // From first_ready_ on, in the order in which they will run.
  std::size_t first_ready_ = 0;
  std::vector<Fiber*> waiting_[2];  // By scope, in the order of arrival.
  uint32_t votes_true_ = 0;         // Of those at the block's barrier.
  bool has_ended_ = false;
  std::vector<std::unique_ptr<Strand>> strands_;  // At work for this block.
};

// --- Inline implementations ---

inline BlockRunner::BlockRunner(const abi::Kernel& kernel, abi::Block& block)
    : kernel_(kernel), block_(block) {
  block_.wait = &BlockRunner::wait;
  block_.owner = this;
}

inline bool BlockRunner::run() noexcept {
  take_result(kernel_.run_threads(&block_));
  while (!strands_.empty()) {
    Fiber& fiber = next();
    if (&fiber == &native_) break;
    resume(fiber);
  }
  auto& idle = idle_strands();
  for (auto& strand : strands_) {
    if (idle.size() < kMaxIdleStrands) idle.push_back(std::move(strand));
  }
  return !has_ended_;
}

inline std::vector<std::unique_ptr<BlockRunner::Strand>>& BlockRunner::idle_strands() {
  static thread_local std::vector<std::unique_ptr<Strand>> idle = [] {
    std::vector<std::unique_ptr<Strand>> empty;
    empty.reserve(kMaxIdleStrands);
    return empty;
  }();
  return idle;
}

inline void BlockRunner::Strand::serve(void* argument) {
  auto& strand = *static_cast<Strand*>(argument);
  for (;;) {
    BlockRunner& runner = *strand.runner;
    runner.take_result(runner.kernel_.run_threads(&runner.block_));
    Fiber& fiber = runner.next();
    runner.resume(fiber);  // Comes back with a thread of another block.
  }
}

inline int32_t BlockRunner::wait(abi::Block* block, uint32_t scope, uint32_t vote) noexcept {
  auto& runner = *static_cast<BlockRunner*>(block->owner);
  try {
    return runner.wait_at(scope, vote != 0);
  } catch (const std::exception&) {
    runner.end(
        "no memory for the stacks of a block's threads: use smaller blocks, or fewer operating "
        "system threads (num_threads)");
    return 1;
  }
}

inline int32_t BlockRunner::wait_at(uint32_t scope, bool vote) {
  if (has_ended_) return 1;
  // What can fail comes first: a thread on a list must be able to wait.
  Fiber* const fresh = has_unstarted() ? &start_strand() : nullptr;
  waiting_[scope].push_back(current_);
  votes_true_ += scope == abi::kBlockScope && vote;
  Fiber& fiber = fresh != nullptr ? *fresh : next();
  if (&fiber != current_) resume(fiber);
  return has_ended_ ? 1 : 0;
}

// Which fiber goes on when the running one cannot and all threads are started.
inline Fiber& BlockRunner::next() {
  if (first_ready_ == ready_.size()) {
    ready_.clear();
    first_ready_ = 0;
    if (!waiting_[abi::kWarpScope].empty()) {
      ready_.swap(waiting_[abi::kWarpScope]);
    } else if (!waiting_[abi::kBlockScope].empty()) {
      ready_.swap(waiting_[abi::kBlockScope]);
      block_.votes = static_cast<uint32_t>(ready_.size());
      block_.votes_true = std::exchange(votes_true_, 0);
    } else {
      return native_;  // Everyone is done.
    }
  }
  return *ready_[first_ready_++];
}

inline void BlockRunner::resume(Fiber& fiber) {
  Fiber& self = *std::exchange(current_, &fiber);
  self.switch_to(fiber);
}

inline Fiber& BlockRunner::start_strand() {
  auto& idle = idle_strands();
  std::unique_ptr<Strand> strand;
  if (idle.empty()) {
    strand = std::make_unique<Strand>();
  } else {
    strand = std::move(idle.back());
    idle.pop_back();
  }
  strand->runner = this;
  strands_.push_back(std::move(strand));
  return strands_.back()->fiber;
}

inline void BlockRunner::take_result(int32_t result) {
  if (result == 1) end({});
}

// Starts nothing more and lets the waiting threads go. The first error is the one that is kept: an
// empty `error` means that the kernel has written it.
inline void BlockRunner::end(std::string_view error) {
  if (!std::exchange(has_ended_, true) && !error.empty() && block_.error_size > 0) {
    const std::size_t size = std::min<std::size_t>(error.size(), block_.error_size - 1);
    error.copy(block_.error, size);
    block_.error[size] = '\0';
  }
  block_.error_size = 0;
  block_.next[2] = block_.dim[2];
}

}  // namespace deep_jit::host
