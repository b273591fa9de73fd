// SPDX-License-Identifier: MIT
//
// host::ThreadPool: the threads that run the blocks of all Host kernels of a process.
//
// What: run() calls a body for every index of a range, on the calling thread and on pool threads,
// and returns when all are done. Threads start when they are first needed and then wait for more.
// The caller always takes part, so that launches from many threads at once cannot starve. A body
// that calls run() again runs its range inline.
// When not: no general task queue; nothing runs after run() has returned.
//
// Example:
//     ThreadPool::shared().run(num_blocks, num_threads, [&](std::uint64_t block) { ... });
//
// Errors: none; when the system gives no more threads, the range is run on those that there are.
// The body must not throw.
// Thread-safety: run() may be called from any thread. After fork() the child gets a pool of its
// own.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>

namespace deep_jit::host {

class ThreadPool {
 public:
  using Body = std::function<void(std::uint64_t)>;

  // The pool of this process. Never destroyed: its threads wait until the process ends.
  static ThreadPool& shared();

  // Calls body(i) once for each i in [0, count), on at most `num_threads` threads.
  void run(std::uint64_t count, int num_threads, const Body& body);

 private:
  struct Job {
    const Body& body;
    std::uint64_t count;
    std::uint64_t piece;  // Indices taken at once.
    int wanted;           // Pool threads that may still join. This and `running`: under mutex_.
    int running = 0;      // Pool threads at work.
    std::atomic<std::uint64_t> next = 0;
  };

  static bool& is_inside() {
    static thread_local bool inside = false;
    return inside;
  }
  static void work(Job& job);
  void start_threads(int count);
  [[noreturn]] void serve();

  const pid_t pid_ = ::getpid();
  std::mutex mutex_;
  std::condition_variable has_job_;
  std::condition_variable job_done_;
  std::deque<Job*> jobs_;  // Those that want more threads.
  int num_threads_ = 0;
};

// --- Inline implementations ---

inline ThreadPool& ThreadPool::shared() {
  // In a forked child the parent's pool has no threads, and its mutex may be locked for ever.
  static std::atomic<ThreadPool*> current = nullptr;
  ThreadPool* pool = current.load();
  while (pool == nullptr || pool->pid_ != ::getpid()) {
    auto* fresh = new ThreadPool;
    if (current.compare_exchange_strong(pool, fresh)) return *fresh;
    delete fresh;  // Another thread was faster; this one has no threads yet.
  }
  return *pool;
}

inline void ThreadPool::work(Job& job) {
  is_inside() = true;
  for (;;) {
    const std::uint64_t begin = job.next.fetch_add(job.piece);
    if (begin >= job.count) break;
    const std::uint64_t end = begin + std::min(job.piece, job.count - begin);
    for (std::uint64_t i = begin; i < end; ++i) job.body(i);
  }
  is_inside() = false;
}

inline void ThreadPool::run(std::uint64_t count, int num_threads, const Body& body) {
  // More threads than a machine has cores many times over are a mistake, not a wish.
  constexpr int kMaxThreads = 1024;
  const int threads = static_cast<int>(std::min<std::uint64_t>(
      count, static_cast<std::uint64_t>(std::clamp(num_threads, 1, kMaxThreads))));
  if (threads <= 1 || is_inside()) {
    for (std::uint64_t i = 0; i < count; ++i) body(i);
    return;
  }
  // Eight pieces per thread: few enough to be cheap to take, enough to even out slow ones.
  Job job{.body = body,
          .count = count,
          .piece = std::max<std::uint64_t>(1, count / (static_cast<std::uint64_t>(threads) * 8)),
          .wanted = threads - 1};
  {
    const std::lock_guard lock(mutex_);
    start_threads(threads - 1);
    jobs_.push_back(&job);
  }
  for (int i = 0; i < threads - 1; ++i) has_job_.notify_one();
  work(job);
  std::unique_lock lock(mutex_);
  std::erase(jobs_, &job);
  job_done_.wait(lock, [&job] { return job.running == 0; });
}

// Under mutex_. Signals are left to the program's own threads.
inline void ThreadPool::start_threads(int count) {
  if (num_threads_ >= count) return;
  sigset_t all;
  sigset_t old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  try {
    for (; num_threads_ < count; ++num_threads_) std::thread([this] { serve(); }).detach();
  } catch (const std::system_error&) {
    // No more threads to be had: the ones there are, at least the caller, do the work.
  }
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

inline void ThreadPool::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    has_job_.wait(lock, [this] { return !jobs_.empty(); });
    Job& job = *jobs_.front();
    if (--job.wanted == 0) jobs_.pop_front();
    ++job.running;
    lock.unlock();
    work(job);
    lock.lock();
    if (--job.running == 0) job_done_.notify_all();
  }
}

}  // namespace deep_jit::host
